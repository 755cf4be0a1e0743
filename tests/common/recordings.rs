//! Recordings as files: a directory of them in one file, compressed.

#![allow(dead_code)] // the bench packs, the test unpacks

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use anyhow::{Context as _, Result};
use lzma_rust2::{XzOptions, XzReader, XzWriter};

/// Writes a directory into a file: for each of its files the path below it, a zero, the length in 8 bytes, and the bytes.
///
/// # Errors
/// A file cannot be read or written.
pub fn pack(directory: &Path, file: &Path) -> Result<()> {
    let mut packed = Vec::new();
    add(directory, Path::new(""), &mut packed)?;
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(9))?;
    writer.write_all(&packed)?;
    fs::write(file, writer.finish()?).with_context(|| format!("cannot write {}", file.display()))
}

fn add(directory: &Path, below: &Path, packed: &mut Vec<u8>) -> Result<()> {
    let mut names: Vec<_> = fs::read_dir(directory.join(below))?.collect::<Result<_, _>>()?;
    names.sort_by_key(fs::DirEntry::file_name);
    for entry in names {
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            add(directory, &path, packed)?;
            continue;
        }
        let bytes = fs::read(entry.path())?;
        packed.extend(path.to_str().context("a path that is no text")?.bytes());
        packed.push(0);
        packed.extend((bytes.len() as u64).to_le_bytes());
        packed.extend(bytes);
    }
    Ok(())
}

/// Writes the files of a packed directory.
///
/// # Errors
/// The file is cut, or is none.
pub fn unpack(file: &Path, directory: &Path) -> Result<()> {
    let packed = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut bytes = Vec::new();
    XzReader::new(&packed[..], false).read_to_end(&mut bytes)?;
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == 0).context("a path is cut")?;
        let path = directory.join(std::str::from_utf8(&rest[..end])?);
        let (length, behind) = rest[end + 1..].split_first_chunk().context("a length is cut")?;
        let length = usize::try_from(u64::from_le_bytes(*length))?;
        let (content, behind) = behind.split_at_checked(length).context("a file is cut")?;
        fs::create_dir_all(path.parent().context("a path")?)?;
        fs::write(path, content)?;
        rest = behind;
    }
    Ok(())
}
