//! Every form is decoded.
