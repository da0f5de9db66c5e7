//! Many short lists in one allocation: the cells of an index, the pieces of rules.

/// Lists, one after the other.
pub(crate) struct Lists<T> {
    items: Vec<T>,
    /// Where each list ends.
    ends: Vec<usize>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            ends: Vec::new(),
        }
    }
}

impl<T> Lists<T> {
    /// The lists that `items` falls apart into at `ends`, which ascend to its length.
    pub(crate) fn new(items: Vec<T>, ends: Vec<usize>) -> Self {
        Self { items, ends }
    }

    /// Adds a list.
    pub(crate) fn push(&mut self, list: impl IntoIterator<Item = T>) {
        self.items.extend(list);
        self.ends.push(self.items.len());
    }

    /// The list at `index`, of which there is one.
    pub(crate) fn get(&self, index: usize) -> &[T] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.items[start..self.ends[index]]
    }

    /// List after list.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[T]> + Clone {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, &end)| &self.items[start..end])
    }

    /// How many lists there are.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The items of all lists.
    pub(crate) fn items(&self) -> &[T] {
        &self.items
    }

    /// How many items all of them have.
    pub(crate) fn item_count(&self) -> usize {
        self.items.len()
    }
}
