//! The names of real files by their inodes: what was renamed, linked, deleted, created again, or is in another mount
//! namespace. Needs a temporary directory on ext4 or xfs, and root.

#[macro_use]
mod common;

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use perf_prof::file::{FileNames, FilePath, FoundBy, InodeKey};
use perf_prof::host::{BlockDevice, BlockDevices, Host};
use perf_prof::sys::monotonic_ns;

/// So much later a file is asked about again, ns.
const LATER_NS: u64 = 3_000_000_000;

fn key_of(path: &Path) -> InodeKey {
    let meta = fs::metadata(path).unwrap();
    InodeKey { device: BlockDevice::of(meta.dev()), inode: meta.ino() }
}

/// The path of a file that an event tells of now, and how it was found.
fn found(key: InodeKey) -> (Option<String>, FoundBy, u32) {
    let mut names = FileNames::start(&Host::default(), BlockDevices::default()).unwrap();
    names.seen(key, monotonic_ns());
    let name = names.name(key);
    let path = name.path.as_ref().map(|FilePath(path)| String::from_utf8(path.clone()).unwrap());
    (path, name.found, name.links)
}

#[test]
fn files_have_the_names_that_they_have_now() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second, third] = ["first", "second", "third"].map(|name| dir.path().join(name));
    fs::write(&first, "x").unwrap();
    let key = key_of(&first);
    let text = |path: &Path| Some(path.to_str().unwrap().to_owned());
    let got = found(key);
    if matches!(got.1, FoundBy::NoMount | FoundBy::NotPermitted) {
        skip!("no files are found by their inodes here: {:?}", got.1);
    }
    assert_eq!(got, (text(&first), FoundBy::Inode, 1));
    fs::rename(&first, &second).unwrap();
    assert_eq!(found(key), (text(&second), FoundBy::Inode, 1));
    fs::hard_link(&second, &third).unwrap();
    let (path, how, links) = found(key);
    assert!(path == text(&second) || path == text(&third), "{path:?}");
    assert_eq!((how, links), (FoundBy::Inode, 2));
    fs::remove_file(&third).unwrap();
    let open = File::open(&second).unwrap();
    fs::remove_file(&second).unwrap();
    assert_eq!(found(key), (Some(format!("{} (deleted)", second.display())), FoundBy::Inode, 0));
    drop(open);
    assert_eq!(found(key).1, FoundBy::Freed);
    assert_eq!(found(key_of(dir.path())), (text(dir.path()), FoundBy::Inode, 2), "a directory");
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
        names.seen(key, time);
        // The answer of the second question replaces that of the first.
        std::thread::sleep(std::time::Duration::from_millis(300));
        time += LATER_NS;
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
    if found(key).1 != FoundBy::Inode {
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
    let mut names = FileNames::start(&Host::default(), BlockDevices::default()).unwrap();
    names.seen(key, seen);
    assert_eq!(names.name(key).found, FoundBy::Reused);
    assert_eq!(found(key).0.as_deref(), new.to_str(), "of a later event it is the name");
}

/// The file systems that only another mount namespace has, as that of a container.
#[test]
fn files_of_other_mount_namespaces_have_names() {
    for (kind, bytes) in [("ext4", 8 << 20), ("xfs", 320 << 20)] {
        match inside_of_an_image(kind, bytes) {
            Some((got, want)) => assert_eq!(got, (Some(want), FoundBy::Inode, 1), "{kind}"),
            None => skip_part!("no mount of an image of {kind}"),
        }
    }
}

/// What is found of a file in an image that is mounted in a mount namespace of its own, and its path there.
fn inside_of_an_image(kind: &str, bytes: u64) -> Option<((Option<String>, FoundBy, u32), String)> {
    let dir = tempfile::tempdir().unwrap();
    let (image, point) = (dir.path().join("image"), dir.path().join("point"));
    fs::create_dir(&point).unwrap();
    File::create(&image).unwrap().set_len(bytes).unwrap();
    let script =
        "mkfs.$2 -q $0 && mount -o loop $0 $1 && echo x > $1/inside && stat -c '%Hd %Ld %i' $1/inside && read end";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script]).args([&image, &point]).arg(kind);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let got = if let [major, minor, inode] = numbers[..] {
        Some(found(InodeKey { device: BlockDevice((major << 20 | minor) as u32), inode }))
    } else {
        None
    };
    drop(child.stdin.take());
    child.wait().unwrap();
    Some((got?, point.join("inside").to_str()?.to_owned()))
}
