//! A network namespace with a loopback device, and a socket that sends frames into it and sees them come back marked.
//!
//! Ends with its thread and its socket.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::{self, Write as _};
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::ptr;

use pktjit::{Field, KeyLayout, Match, Rule, RuleSet};

use crate::nft;
use crate::traffic::Traffic;

/// An Ethernet type for experiments (IEEE 802), which no protocol of the kernel takes.
pub(crate) const ETHERTYPE: u16 = 0x88b5;
/// The only device of a new namespace. What is sent to it comes in again, through the ingress hook.
pub(crate) const DEVICE: &str = "lo";
/// What every namespace calls its loopback device (`LOOPBACK_IFINDEX`).
const DEVICE_INDEX: c_int = 1;

/// Frames sent before their marks are read: fewer than the 1000 that the kernel queues for a device.
const BURST: usize = 500;
/// Room for a burst and the kernel's bookkeeping of it; the default has not enough.
const RECEIVE_BUFFER: c_int = 16 << 20;
/// How often a lost frame is sent.
const ATTEMPTS: usize = 5;
/// How long a mark is waited for.
const PATIENCE: libc::timeval = libc::timeval {
    tv_sec: 0,
    tv_usec: 500_000,
};

pub(crate) struct Kernel {
    socket: File,
}

impl Kernel {
    /// Moves this thread, and the processes that it starts from now on, to a network namespace of its own.
    ///
    /// # Errors
    /// What this process may not do, or this machine cannot.
    pub(crate) fn in_new_namespace() -> Result<Self, String> {
        // SAFETY: it takes no pointers; the namespace is that of this thread alone.
        let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        checked(result).map_err(|error| format!("no network namespace: {error}"))?;
        let socket = packet_socket().map_err(|error| format!("no packet socket: {error}"))?;
        let mut kernel = Self { socket };
        // Both kinds of sets at once would need two maps; these are the modules that a kernel may lack.
        for fields in [1, 2] {
            let fields = (0..fields).map(|_| Field::inet_service("probe"));
            let layout = KeyLayout::packed(fields).expect("two ports fit");
            let rule = Rule::new(
                layout
                    .fields()
                    .iter()
                    .map(|_| Match::Range { lo: 1, hi: 2 }),
            );
            let rules = RuleSet::builder(layout).rule(rule.with_verdict(nft::verdict(1)));
            kernel.load(&rules.build().expect("one rule"), false)?;
        }
        Ok(kernel)
    }

    /// Puts `rules` in the place of what was loaded before.
    ///
    /// # Errors
    /// The first line of what `nft` says. What was loaded before stays.
    pub(crate) fn load(&mut self, rules: &RuleSet, is_exact: bool) -> Result<(), String> {
        nft::run(&nft::script(rules, is_exact))
    }

    /// The mark that each frame gets, 0 for none.
    ///
    /// # Panics
    /// Where a frame is lost again and again.
    pub(crate) fn marks(&mut self, traffic: &Traffic) -> Vec<u32> {
        let mut marks = vec![None; traffic.len()];
        for _ in 0..ATTEMPTS {
            let missing: Vec<usize> = (0..marks.len()).filter(|&i| marks[i].is_none()).collect();
            for burst in missing.chunks(BURST) {
                for &index in burst {
                    self.socket
                        .write_all(traffic.frame(index))
                        .expect("lo is up");
                }
                for _ in burst {
                    let Some((frame, mark)) = self.receive() else {
                        break;
                    };
                    // A frame that was late, and not lost, is of traffic before.
                    if let Some(index) = traffic.index(&frame) {
                        marks[index] = Some(mark);
                    }
                }
            }
        }
        let marks: Option<Vec<u32>> = marks.into_iter().collect();
        marks.expect("a frame was lost again and again")
    }

    /// The next frame and its mark; `None` where none comes.
    fn receive(&mut self) -> Option<(Vec<u8>, u32)> {
        let mut frame = vec![0; 256];
        let mut part = libc::iovec {
            iov_base: frame.as_mut_ptr().cast(),
            iov_len: frame.len(),
        };
        // As `u64`s so that the control messages in it are aligned.
        let mut control = [0u64; 8];
        // SAFETY: all-zero bytes are a `msghdr`: null pointers and zero lengths.
        let mut message: libc::msghdr = unsafe { zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control) as _;
        // SAFETY: `message` points to `part` and `control` with their lengths, `part` to `frame` with its; all live on.
        let received = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, 0) };
        frame.truncate(usize::try_from(received).ok()?);

        // SAFETY: `recvmsg` has set `msg_controllen` to the bytes of `control` that hold whole control messages.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !header.is_null() {
            // SAFETY: not null, so `CMSG_FIRSTHDR` or `CMSG_NXTHDR` found a whole header inside `control`.
            let found = unsafe { *header };
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SO_MARK) {
                // SAFETY: the data of a mark are its four bytes, which follow their header.
                let mark = unsafe { ptr::read_unaligned(libc::CMSG_DATA(header).cast()) };
                return Some((frame, mark));
            }
            // SAFETY: `header` is a header inside the control messages of `message`.
            header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
        }
        panic!("a frame came without a mark");
    }
}

/// A socket that sends to the loopback device, after turning it on, and receives frames of [`ETHERTYPE`] with their marks.
fn packet_socket() -> io::Result<File> {
    let protocol = ETHERTYPE.to_be();
    // SAFETY: it takes no pointers.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol.into(),
        )
    };
    // SAFETY: `fd` is a new descriptor that nothing else owns.
    let socket = unsafe { File::from_raw_fd(checked(fd)?) };

    // SAFETY: all-zero bytes are an `ifreq`: an empty name and integers.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, &from) in request.ifr_name.iter_mut().zip(DEVICE.as_bytes()) {
        *to = from as _;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as _;
    // SAFETY: SIOCSIFFLAGS reads an `ifreq`, here with a name that ends in zeros.
    checked(unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw const request) })?;

    // SAFETY: all-zero bytes are a `sockaddr_ll`: integers.
    let mut address: libc::sockaddr_ll = unsafe { zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol;
    address.sll_ifindex = DEVICE_INDEX;
    // SAFETY: the address is a `sockaddr_ll` of the length given.
    checked(unsafe {
        libc::bind(
            fd,
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    })?;

    set_option(&socket, libc::SO_RCVMARK, &1)?;
    set_option(&socket, libc::SO_RCVBUFFORCE, &RECEIVE_BUFFER)?;
    set_option(&socket, libc::SO_RCVTIMEO, &PATIENCE)?;
    Ok(socket)
}

fn set_option<T>(socket: &File, option: c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    let value: *const c_void = ptr::from_ref(value).cast();
    // SAFETY: `value` points to `len` bytes that are only read.
    checked(unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, len) })?;
    Ok(())
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
