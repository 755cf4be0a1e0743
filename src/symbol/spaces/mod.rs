//! The executable mappings of processes, so that an address is a place in a file.
//!
//! On the main thread an address space is a number ([`space_keys`]). The output thread has the lists of mappings
//! (`mappings`; `shared_maps` says who shares and pays for them) of all processes ([`address_spaces`]), from records
//! and from lines of /proc ([`maps_line`]). A [`module`] is the mapped thing: its file was opened while it could be
//! reached ([`files`]), and its unwind tables are loaded when a stack needs them ([`unwind_tables`]). Copies that a
//! program has made of its own code are recognized ([`remapped`]). What is mapped as data is only asked about, address by
//! address ([`mapped_files`]).

pub mod address_spaces;
pub mod files;
pub mod mapped_files;
mod mappings;
pub mod maps_line;
pub mod module;
pub mod remapped;
mod shared_maps;
pub mod space_keys;
pub mod unwind_tables;
