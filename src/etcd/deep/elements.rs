//! The elements of one page: where they lie, and in which order their keys are.

use super::super::bolt::{PAGE_HEADER, PageHeader};
use super::super::bytes::{slice, u32_le, u64_le};
use super::walk::{Place, Span, Visitor};
use crate::model::FaultKind;

const ELEMENT: usize = 16;

pub(super) type Found = Result<(), (FaultKind, String)>;

pub(super) fn branch(bytes: &[u8], header: PageHeader, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Found {
    let count = usize::from(header.count);
    let mut order = Order::new(lower, upper);
    let body = elements_end(count);
    for index in 0..count {
        let key = branch_element(bytes, index).map(|(key, _)| key);
        let starts = u32_le(bytes, element_at(index)).and_then(|pos| usize::try_from(pos).ok());
        let inside = starts.and_then(|pos| element_at(index).checked_add(pos)).is_some_and(|at| at >= body);
        let Some(key) = key.filter(|_| inside) else { return Err(element(index, count)) };
        order.next(key, index);
    }
    order.end()
}

/// Checks a leaf's elements and hands them over.
pub(super) fn leaf(
    bytes: &[u8],
    header: PageHeader,
    page: u64,
    offset: u64,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
    visitor: &mut dyn Visitor,
) -> Found {
    let count = usize::from(header.count);
    let mut order = Order::new(lower, upper);
    let body = elements_end(count);
    let mut bad = None;
    let mut nested = false;
    for index in 0..count {
        let Some(span) = leaf_element(bytes, index).filter(|span| span.key >= body) else {
            bad = bad.or(Some(index));
            continue;
        };
        let Some(key) = bytes.get(span.key..span.value) else { continue };
        order.next(key, index);
        nested |= span.bucket && !visitor.holds_buckets();
        let place = Place { page, offset: offset.saturating_add(u64::try_from(span.key).unwrap_or(0)) };
        visitor.item(place, bytes, span);
    }
    match bad {
        Some(index) => Err(element(index, count)),
        None if nested => Err((FaultKind::Nested, "holds a bucket within a bucket, which etcd never makes".to_owned())),
        None => order.end(),
    }
}

fn element(index: usize, count: usize) -> (FaultKind, String) {
    (FaultKind::Element, format!("has an element (number {index} of {count}) that does not lie where elements lie"))
}

/// Follows the keys of one page.
struct Order<'k> {
    before: Option<&'k [u8]>,
    lower: Option<&'k [u8]>,
    upper: Option<&'k [u8]>,
    wrong: Option<usize>,
    foreign: bool,
}

impl<'k> Order<'k> {
    fn new(lower: Option<&'k [u8]>, upper: Option<&'k [u8]>) -> Self {
        Order { before: None, lower, upper, wrong: None, foreign: false }
    }

    fn next(&mut self, key: &'k [u8], index: usize) {
        match self.before {
            Some(before) => {
                if before >= key {
                    self.wrong = self.wrong.or(Some(index));
                }
            }
            None => self.foreign |= self.lower.is_some_and(|lower| key < lower),
        }
        self.before = Some(key);
    }

    fn end(self) -> Found {
        if let Some(index) = self.wrong {
            return Err((FaultKind::Order, format!("has keys out of order at element {index}")));
        }
        let beyond = self.before.zip(self.upper).is_some_and(|(last, upper)| last >= upper);
        if self.foreign || beyond {
            return Err((FaultKind::Parent, "holds keys that do not belong below its parent".to_owned()));
        }
        Ok(())
    }
}

fn element_at(index: usize) -> usize {
    PAGE_HEADER.saturating_add(index.saturating_mul(ELEMENT))
}

fn elements_end(count: usize) -> usize {
    element_at(count)
}

fn leaf_element(bytes: &[u8], index: usize) -> Option<Span> {
    let at = element_at(index);
    let element = slice(bytes, at, ELEMENT)?;
    let number = |place| u32_le(element, place).and_then(|n| usize::try_from(n).ok());
    let key = at.checked_add(number(4)?)?;
    let value = key.checked_add(number(8)?)?;
    let end = value.checked_add(number(12)?)?;
    (end <= bytes.len()).then_some(Span { key, value, end, bucket: number(0)? & 1 != 0 })
}

pub(super) fn branch_element(bytes: &[u8], index: usize) -> Option<(&[u8], u64)> {
    let at = element_at(index);
    let element = slice(bytes, at, ELEMENT)?;
    let pos = usize::try_from(u32_le(element, 0)?).ok()?;
    let ksize = usize::try_from(u32_le(element, 4)?).ok()?;
    Some((slice(bytes, at.checked_add(pos)?, ksize)?, u64_le(element, 8)?))
}
