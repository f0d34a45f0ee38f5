//! The key-encryption key: 32 random bytes that the operator keeps, from a variable, a file or a credential.
//!
//! Invariant: the bytes are wiped when the key is dropped, and are shown by nothing: there is no `Debug`, no `Display`,
//! and no error that repeats what it could not read.

use crate::entropy;
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose::STANDARD};
use ring::hmac;
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// A key file is one short line; more is not read.
const FILE_BYTES: usize = 1024;

/// The key-encryption key. In a box, so that moving it leaves no copy behind.
pub struct Kek(Box<Zeroizing<[u8; KEY_BYTES]>>);

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KekError {
    /// Neither hex nor base64.
    #[error("the KEK is neither base64 nor hex; make one with: openssl rand -base64 32")]
    Encoding,
    /// Not 32 bytes.
    #[error("the KEK has {bytes} bytes instead of 32; make one with: openssl rand -base64 32")]
    Length {
        /// How many it has.
        bytes: usize,
    },
    /// One byte over and over, or text that somebody thought of.
    #[error("the KEK is not random; make one with: openssl rand -base64 32")]
    NotRandom,
    /// The operating system gives no random bytes.
    #[error("the operating system gives no random bytes for a KEK")]
    NoRandomBytes,
    /// The file cannot be read or written.
    #[error("the KEK file {} cannot be used: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A link, a pipe, a directory.
    #[error("the KEK file {} is not a plain file (links are not followed)", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// Others may read or write it.
    #[error("the KEK file {} has mode {mode:04o}: only its owner may have access (chmod 600)", path.display())]
    OpenToOthers {
        /// Which.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It belongs to another user.
    #[error("the KEK file {} belongs to user {owner}, who is neither the hub's user nor root", path.display())]
    OfAnotherUser {
        /// Which.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
    },
    /// A new one would replace it.
    #[error("the KEK file {} is there already; it is never replaced", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
}

impl Kek {
    /// Reads a key: 32 bytes as 64 hex digits, or as base64 of either alphabet. Spaces and line ends around it do not
    /// count.
    ///
    /// # Errors
    /// When it is not that, or plainly not random.
    pub fn parse(text: &str) -> Result<Self, KekError> {
        let text = text.trim();
        let bytes = if is_hex(text) { from_hex(text) } else { from_base64(text) };
        let bytes = bytes.ok_or(KekError::Encoding)?;
        if bytes.len() != KEY_BYTES {
            return Err(KekError::Length { bytes: bytes.len() });
        }
        let text_like = bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
        if text_like || bytes.iter().all(|byte| *byte == bytes[0]) {
            return Err(KekError::NotRandom);
        }
        let mut key = Box::new(Zeroizing::new([0; KEY_BYTES]));
        key.copy_from_slice(&bytes);
        Ok(Self(key))
    }

    /// A new key.
    ///
    /// # Errors
    /// When the operating system gives no random bytes.
    pub fn generate() -> Result<Self, KekError> {
        let mut key = Box::new(Zeroizing::new([0; KEY_BYTES]));
        entropy::os_bytes(&mut key[..]).map_err(|_| KekError::NoRandomBytes)?;
        Ok(Self(key))
    }

    /// Reads a key from a file that is nobody else's: no link, mode 0600 or stricter, owned by this user or root. (A
    /// credential that systemd shows to its service by an access list is of root, group root, with mode 0440.)
    ///
    /// # Errors
    /// When the file is not so, or holds no key.
    pub fn from_file(path: &Path) -> Result<Self, KekError> {
        let failed = |source| KekError::File { path: path.to_owned(), source };
        // Not blocking: a pipe without a writer would hang the start.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => file,
            Err(rustix::io::Errno::LOOP) => return Err(KekError::NotAFile { path: path.to_owned() }),
            Err(error) => return Err(failed(error.into())),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| failed(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(KekError::NotAFile { path: path.to_owned() });
        }
        let mode = stat.st_mode & 0o7777;
        let shown_by_systemd = mode == 0o440 && stat.st_uid == 0 && stat.st_gid == 0;
        if mode & !0o600 != 0 && !shown_by_systemd {
            return Err(KekError::OpenToOthers { path: path.to_owned(), mode });
        }
        if stat.st_uid != 0 && stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(KekError::OfAnotherUser { path: path.to_owned(), owner: stat.st_uid });
        }
        // As long as it may get, so that it is never moved and leaves no copy behind.
        let mut text = Zeroizing::new(String::with_capacity(FILE_BYTES + 1));
        File::from(file).take(FILE_BYTES as u64).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text)
    }

    /// Writes the key to a new file of mode 0600, whole or not at all. The caller holds the directory's lock.
    ///
    /// # Errors
    /// When there is a file of that name, or it cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KekError> {
        if std::fs::symlink_metadata(path).is_ok() {
            return Err(KekError::Exists { path: path.to_owned() });
        }
        self.written(path).map_err(|source| KekError::File { path: path.to_owned(), source })
    }

    fn written(&self, path: &Path) -> io::Result<()> {
        let mut line = Zeroizing::new(String::with_capacity(64));
        STANDARD.encode_string(&self.0[..], &mut line);
        line.push('\n');
        let unfinished = path.with_extension("new");
        // One left by a crash: it was never anybody's key.
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(&unfinished, flags, Mode::RUSR | Mode::WUSR)?);
        file.write_all(line.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unfinished, path)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }

    /// A number that tells keys apart; stands in every sealed value.
    pub fn key_id(&self) -> u32 {
        let [a, b, c, d, ..] = self.mac(b"streaming-hub/kek-id/v1");
        u32::from_be_bytes([a, b, c, d])
    }

    /// What the store keeps to tell a wrong key before it is used (it says nothing about the key).
    pub fn check_value(&self) -> [u8; 16] {
        let mac = self.mac(b"streaming-hub/kek-check/v1");
        std::array::from_fn(|at| mac[at])
    }

    /// The bytes, for the cipher.
    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn mac(&self, label: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0[..]), label);
        let mut mac = [0; 32];
        mac.copy_from_slice(tag.as_ref());
        mac
    }
}

/// Hex digits only and in pairs; but 44 of them are the base64 of 32 bytes, by a rare chance.
fn is_hex(text: &str) -> bool {
    text.len().is_multiple_of(2) && text.len() != 44 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn from_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Zeroizing::new(Vec::with_capacity(KEY_BYTES));
    for pair in text.as_bytes().chunks_exact(2) {
        bytes.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(bytes)
}

fn from_base64(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let config = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let engines = [alphabet::STANDARD, alphabet::URL_SAFE].map(|alphabet| GeneralPurpose::new(&alphabet, config));
    engines.iter().find_map(|engine| {
        let mut bytes = Zeroizing::new(vec![0; text.len()]);
        let length = engine.decode_slice(text, &mut bytes).ok()?;
        bytes.truncate(length);
        Some(bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1eff";

    fn read(text: &str) -> Result<[u8; 32], String> {
        Kek::parse(text).map(|kek| *kek.bytes()).map_err(|error| error.to_string())
    }

    // Settings: 32 bytes, base64 or hex; nothing that was never random (test list 1c).
    #[test]
    fn a_kek_is_32_random_bytes() {
        let bytes: [u8; 32] = std::array::from_fn(|at| if at == 31 { 255 } else { u8::try_from(at).unwrap() });
        let base64 = STANDARD.encode(bytes);
        let dashes = STANDARD.encode([251; 31].iter().chain(&[7]).copied().collect::<Vec<u8>>());
        for text in [HEX, &HEX.to_uppercase(), &base64, base64.trim_end_matches('='), &format!(" {base64}\r\n")] {
            assert_eq!(read(text), Ok(bytes), "{text}");
        }
        assert!(read(&dashes).is_ok() && dashes.contains('+'));
        assert_eq!(read(&dashes.replace('+', "-").replace('/', "_")), read(&dashes));
        for (text, part) in [
            ("", "0 bytes"),
            ("AAEC", "2 bytes"),
            ("AAECAw==", "4 bytes"),
            (&HEX[..62], "31 bytes"),
            (&format!("{HEX}00"), "33 bytes"),
            (&format!("{}g", &HEX[..63]), "48 bytes"),
            (&base64.replace('A', "*"), "neither base64 nor hex"),
            (&format!("{base64}{base64}"), "neither base64 nor hex"),
            ("senha secreta", "neither base64 nor hex"),
            (&"00".repeat(32), "not random"),
            (&"a7".repeat(32), "not random"),
            (&STANDARD.encode([0; 32]), "not random"),
            (&STANDARD.encode("correct horse battery staple 123"), "not random"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
            assert!(text.len() < 8 || !error.contains(text.trim()), "the error must not repeat what it was given");
        }
    }

    #[test]
    fn a_key_is_known_by_its_values() {
        let (one, same) = (Kek::parse(HEX).unwrap(), Kek::parse(HEX).unwrap());
        let other = Kek::generate().unwrap();
        assert_eq!((one.key_id(), one.check_value()), (same.key_id(), same.check_value()));
        assert_ne!(one.check_value(), other.check_value());
        assert_ne!(one.check_value()[..4], one.key_id().to_be_bytes(), "two labels, two values");
        assert_ne!(other.bytes(), Kek::generate().unwrap().bytes());
        assert_ne!(other.bytes(), &[0; 32]);
    }

    #[test]
    fn a_key_file_is_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kek");
        std::fs::write(&path, format!("{HEX}\n")).unwrap();
        for (mode, good) in [
            (0o600, true),
            (0o400, true),
            (0o640, false),
            (0o604, false),
            (0o620, false),
            (0o700, false),
            (0o4600, false),
        ] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match Kek::from_file(&path) {
                Ok(_) => assert!(good, "{mode:o}"),
                Err(KekError::OpenToOthers { mode: found, .. }) => assert!(!good && found == mode, "{mode:o}"),
                Err(error) => panic!("{mode:o}: {error}"),
            }
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(matches!(Kek::from_file(&link), Err(KekError::NotAFile { .. })));
        assert!(matches!(Kek::from_file(dir.path()), Err(KekError::NotAFile { .. })));
        assert!(matches!(Kek::from_file(&dir.path().join("none")), Err(KekError::File { .. })));
        std::fs::write(&path, "x".repeat(FILE_BYTES * 2)).unwrap();
        assert!(matches!(Kek::from_file(&path), Err(KekError::Length { .. } | KekError::Encoding)));
        std::fs::write(&path, [0xff; 8]).unwrap();
        assert!(matches!(Kek::from_file(&path), Err(KekError::File { .. })));
    }

    #[test]
    fn a_new_file_holds_the_key_and_replaces_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kek");
        std::fs::write(dir.path().join("kek.new"), "left by a crash").unwrap();
        let kek = Kek::generate().unwrap();
        kek.write_new(&path).unwrap();
        assert_eq!(Kek::from_file(&path).unwrap().bytes(), kek.bytes());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        assert!(!dir.path().join("kek.new").exists());
        assert!(matches!(Kek::generate().unwrap().write_new(&path), Err(KekError::Exists { .. })));
        assert_eq!(Kek::from_file(&path).unwrap().bytes(), kek.bytes());
        assert!(matches!(kek.write_new(&dir.path().join("no/kek")), Err(KekError::File { .. })));
    }

    proptest! {
        #[test]
        fn any_random_key_is_read_in_every_encoding(bytes: [u8; 32]) {
            prop_assume!(bytes.iter().any(|byte| *byte != bytes[0]));
            prop_assume!(bytes.iter().any(|byte| !matches!(byte, b' '..=b'~')));
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let url_safe = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
            for text in [hex, STANDARD.encode(bytes), url_safe] {
                prop_assert_eq!(read(&text), Ok(bytes));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,70}") {
            let _ = Kek::parse(&text);
        }
    }
}
