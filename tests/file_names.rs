//! The names of real files by their inodes: what was renamed, linked, deleted, created again, or is in another mount
//! namespace. Needs a temporary directory on ext4 or xfs, and root.

#[macro_use]
mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::until;
use perf_prof::file::{FileNames, FilePath, FoundBy, InodeKey};
use perf_prof::host::{BlockDevice, BlockDevices, Host};
use perf_prof::sys::monotonic_ns;

/// So much later a file is asked about again, ns.
const LATER_NS: u64 = 3_000_000_000;

fn key_of(path: &Path) -> InodeKey {
    let meta = fs::metadata(path).unwrap();
    InodeKey { device: BlockDevice::of(meta.dev()), inode: meta.ino() }
}

/// What is found of a file.
#[derive(Debug, PartialEq, Eq)]
struct FoundFile {
    path: Option<String>,
    found: FoundBy,
    /// The number of its names.
    links: u32,
}

impl FoundFile {
    fn at(path: &Path, links: u32) -> FoundFile {
        FoundFile { path: Some(path.to_str().unwrap().to_owned()), found: FoundBy::Inode, links }
    }
}

/// What is found of a file that an event at this time tells of. A busy machine may need several questions.
fn found_of(key: InodeKey, time: u64) -> FoundFile {
    let mut last = None;
    until("an answer", || {
        let mut names = FileNames::start(&Host::default(), BlockDevices::default()).unwrap();
        names.seen(key, time);
        let name = names.name(key);
        let path = name.path.as_ref().map(|FilePath(path)| String::from_utf8(path.clone()).unwrap());
        last = Some(FoundFile { path, found: name.found, links: name.links });
        name.found != FoundBy::NoAnswer
    });
    last.unwrap()
}

/// What is found of a file that an event tells of now.
fn found(key: InodeKey) -> FoundFile {
    found_of(key, monotonic_ns())
}

#[test]
fn files_have_the_names_that_they_have_now() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second, third] = ["first", "second", "third"].map(|name| dir.path().join(name));
    fs::write(&first, "x").unwrap();
    let key = key_of(&first);
    let got = found(key);
    if matches!(got.found, FoundBy::NoMount | FoundBy::NotPermitted) {
        skip!("no files are found by their inodes here: {:?}", got.found);
    }
    assert_eq!(got, FoundFile::at(&first, 1));
    fs::rename(&first, &second).unwrap();
    assert_eq!(found(key), FoundFile::at(&second, 1));
    fs::hard_link(&second, &third).unwrap();
    let got = found(key);
    assert!(got == FoundFile::at(&second, 2) || got == FoundFile::at(&third, 2), "{got:?}");
    fs::remove_file(&third).unwrap();
    let open = File::open(&second).unwrap();
    fs::remove_file(&second).unwrap();
    assert_eq!(found(key), FoundFile::at(Path::new(&format!("{} (deleted)", second.display())), 0));
    drop(open);
    assert_eq!(found(key).found, FoundBy::Freed);
    assert_eq!(found(key_of(dir.path())), FoundFile::at(dir.path(), 2), "a directory");
}

/// A file keeps its name when it is deleted, and gets a new one when it is renamed.
#[test]
fn a_deleted_file_keeps_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    fs::write(&first, "x").unwrap();
    let key = key_of(&first);
    let mut names = FileNames::start(&Host::default(), BlockDevices::default()).unwrap();
    let mut time = monotonic_ns();
    let mut path_after = |change: &dyn Fn()| {
        change();
        // Questions are answered in order: once a new file has its name, the one before it was asked about again.
        let mut number = 0;
        until("an answer", || {
            number += 1;
            let marker = dir.path().join(format!("{number} at {time}"));
            fs::write(&marker, "x").unwrap();
            time += LATER_NS;
            [key, key_of(&marker)].iter().for_each(|key| names.seen(*key, time));
            names.name(key_of(&marker)).found != FoundBy::NoAnswer
        });
        names.name(key).path.as_ref().map(|FilePath(path)| path.clone())
    };
    if path_after(&|| ()).is_none() {
        skip!("no files are found by their inodes here");
    }
    let second_name = Some(second.to_str().unwrap().as_bytes().to_vec());
    assert_eq!(path_after(&|| fs::rename(&first, &second).unwrap()), second_name);
    assert_eq!(path_after(&|| fs::remove_file(&second).unwrap()), second_name);
}

/// An inode that was given to another file after the event is not told as the file of the event.
#[test]
fn a_reused_inode_is_no_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("first");
    fs::write(&path, "x").unwrap();
    let key = key_of(&path);
    if found(key).found != FoundBy::Inode {
        skip!("no files are found by their inodes here");
    }
    let seen = monotonic_ns();
    fs::remove_file(&path).unwrap();
    // The time of birth has the resolution of the kernel's tick.
    std::thread::sleep(std::time::Duration::from_millis(30));
    let files = (0..2000).map(|number| dir.path().join(number.to_string()));
    let Some(new) = files.into_iter().find(|path| fs::write(path, "x").is_ok() && key_of(path) == key) else {
        skip!("the file system does not reuse the inode");
    };
    assert_eq!(found_of(key, seen).found, FoundBy::Reused);
    assert_eq!(found(key).path.as_deref(), new.to_str(), "of a later event it is the name");
}

/// The file systems that only another mount namespace has, as that of a container.
#[test]
fn files_of_other_mount_namespaces_have_names() {
    for (kind, bytes) in [("ext4", 8 << 20), ("xfs", 320 << 20)] {
        let script = "mkfs.$2 -q $0 && mount -o loop $0 $1";
        match inside_of_an_image(kind, bytes, script) {
            Some((got, path)) => assert_eq!(got, FoundFile::at(&path, 1), "{kind}"),
            None => skip_part!("no mount of an image of {kind}"),
        }
    }
}

/// A mount that covers another one has an inode with the same number: a file that the event does not tell of.
#[test]
fn a_mount_that_covers_another_one_is_not_asked() {
    let script = "mkfs.$2 -q $0 && cp $0 $0.upper && mount -o loop $0 $1 && echo x > $1/inside \
        && stat -c '%Hd %Ld %i' $1/inside && mount -o loop $0.upper $1";
    match inside_of_an_image("ext4", 8 << 20, script) {
        Some((got, _)) => assert_eq!(got.found, FoundBy::NoMount, "{got:?}"),
        None => skip!("no mount of an image"),
    }
}

/// What is found of a file in an image that is mounted in a mount namespace of its own, and its path there. The script mounts
/// the image $0 at $1.
fn inside_of_an_image(kind: &str, bytes: u64, script: &str) -> Option<(FoundFile, PathBuf)> {
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (dir.path().join("image"), dir.path().join("point"));
    fs::create_dir(&point).unwrap();
    File::create(&image).unwrap().set_len(bytes).unwrap();
    let script = format!("{script} && echo x > $1/inside && stat -c '%Hd %Ld %i' $1/inside && echo && read end");
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script]).args([&image, &point]).arg(kind);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    // The first of the files that it tells of, once all is mounted.
    let told: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let line = told.first().cloned().unwrap_or_default();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let got = if let [major, minor, inode] = numbers[..] {
        Some(found(InodeKey { device: BlockDevice((major << 20 | minor) as u32), inode }))
    } else {
        None
    };
    drop(child.stdin.take());
    child.wait().unwrap();
    Some((got?, point.join("inside")))
}
