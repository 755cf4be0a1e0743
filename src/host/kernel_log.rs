//! What the kernel logs from now on, as far as /dev/kmsg may be read.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A reader of the kernel's log. Anybody may write to the log.
#[derive(Debug, Default)]
pub struct KernelLog {
    /// None: it may not be read.
    file: Option<File>,
}

impl KernelLog {
    /// The records that are logged from now on.
    pub fn open(path: &Path) -> KernelLog {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let at_end = |mut file: File| file.seek(SeekFrom::End(0)).ok().map(|_| file);
        KernelLog { file: file.ok().and_then(at_end) }
    }

    pub fn is_readable(&self) -> bool {
        self.file.is_some()
    }

    /// Passes the texts of the new records to `each`, up to a number; the rest follows with the next call.
    pub fn read_new(&mut self, mut each: impl FnMut(&str)) {
        const MAX_RECORDS: usize = 20_000;
        /// A record is read whole or not at all; the kernel's are shorter (`PRINTK_MESSAGE_MAX`).
        const MAX_BYTES: usize = 8192;
        let Some(file) = &mut self.file else { return };
        let mut bytes = [0; MAX_BYTES];
        for _ in 0..MAX_RECORDS {
            match file.read(&mut bytes) {
                Ok(0) => return,
                Ok(len) => each(text_of(&String::from_utf8_lossy(bytes.get(..len).unwrap_or_default()))),
                // Records were overwritten before they were read: the next call gets the oldest one that is left.
                Err(err) if err.kind() == ErrorKind::BrokenPipe => {}
                Err(_) => return,
            }
        }
    }
}

/// The text of a record: `6,1234,77594302547,-;text`, and then lines about the device.
fn text_of(record: &str) -> &str {
    let text = record.split_once(';').map_or("", |(_, text)| text);
    text.lines().next().unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_text() {
        assert_eq!(text_of("6,1,2,-;usb 1-1: new; device\n SUBSYSTEM=usb\n"), "usb 1-1: new; device");
        assert_eq!([text_of(""), text_of("no prefix"), text_of("6,1,2,-;")], [""; 3]);
    }

    #[test]
    fn what_cannot_be_read_is_silent() {
        let mut log = KernelLog::open(Path::new("/nonexistent"));
        assert!(!log.is_readable());
        log.read_new(|text| panic!("{text}"));
    }
}
