//! Finding and loading ONNX Runtime, once per process.
//!
//! Owns: the order of the places looked at, the check of a library before it is loaded, the one environment.
//! Does not know: models. Reads no process variables: a path given by flag or variable arrives as an argument.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use ort::environment::Environment;
use ort::logging::LogLevel;

use super::EmbedError;

/// Below the program's folder and below the working directory; `make setup` fills it.
const FETCHED: &str = ".runtime/onnxruntime";

/// Where packages of operating systems put libraries the loader may not know.
const SYSTEM_DIRS: [&str; 7] = [
    "/usr/local/lib",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/opt/onnxruntime/lib",
    "/opt/homebrew/lib",
];

/// The environment of this process. The first library that loads stays: a process can hold only one, so later calls
/// return it whatever they name.
///
/// # Errors
/// [`EmbedError::NoRuntime`] with every place that was tried and the command that fixes it. A named library that cannot
/// be loaded is an error even if another one could be.
pub fn environment(named: Option<&Path>) -> Result<Environment, EmbedError> {
    static LOADED: OnceLock<Environment> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    // ort refuses a second environment, so two threads must not build one at the same time.
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(environment) = LOADED.get() {
        return Ok(environment.clone());
    }
    let environment = find(named, load)?;
    Ok(LOADED.get_or_init(|| environment).clone())
}

/// Tries the places in order with `load`; separate from [`environment`] because a process loads only once.
fn find<T>(named: Option<&Path>, mut load: impl FnMut(&Path) -> Result<T, String>) -> Result<T, EmbedError> {
    if let Some(path) = named {
        let library = if path.is_dir() { library_in(path) } else { Some(path.to_owned()) };
        let attempt = match library {
            Some(library) => check(&library).and_then(|()| load(&library)),
            None => Err("the folder holds no library of that name".to_owned()),
        };
        return attempt.map_err(|reason| {
            EmbedError::NoRuntime(format!(
                "the ONNX Runtime library named in the settings cannot be used: {}: {reason}; correct the path, or \
                 leave it out and run `make setup`",
                path.display()
            ))
        });
    }
    let mut tried = Vec::new();
    let mut attempt = |library: &Path, tried: &mut Vec<String>| {
        let reason = match load(library) {
            Ok(loaded) => return Some(loaded),
            Err(reason) => reason,
        };
        tried.push(format!("{}: {reason}", library.display()));
        None
    };
    for folder in own_dirs().into_iter().chain(SYSTEM_DIRS.map(PathBuf::from)) {
        let Some(library) = library_in(&folder) else { continue };
        if let Err(reason) = check(&library) {
            tried.push(format!("{}: {reason}", library.display()));
        } else if let Some(loaded) = attempt(&library, &mut tried) {
            return Ok(loaded);
        }
    }
    // Last, whatever the system's loader finds under the plain name. ort asks for the program's own path here.
    if std::env::current_exe().is_ok()
        && let Some(loaded) = attempt(Path::new(&plain_name()), &mut tried)
    {
        return Ok(loaded);
    }
    Err(EmbedError::NoRuntime(format!(
        "ONNX Runtime was not found beside the program, in the working directory or in the system; run `make setup`, \
         which fetches it into {FETCHED} (tried {})",
        tried.join("; ")
    )))
}

fn own_dirs() -> Vec<PathBuf> {
    let beside = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.join(FETCHED)));
    let working = std::env::current_dir().ok().map(|folder| folder.join(FETCHED));
    beside.into_iter().chain(working).collect()
}

fn plain_name() -> String {
    format!("{}onnxruntime{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)
}

/// `libonnxruntime.so`, or else the last by name of those with a version in it.
fn library_in(folder: &Path) -> Option<PathBuf> {
    let plain = folder.join(plain_name());
    if plain.is_file() {
        return Some(plain);
    }
    let stem = format!("{}onnxruntime.", std::env::consts::DLL_PREFIX);
    let named = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(&stem) && name.contains(std::env::consts::DLL_SUFFIX) && !name.ends_with(".part")
    };
    let files = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    files.filter(named).filter(|path| path.is_file()).max()
}

fn load(library: &Path) -> Result<Environment, String> {
    let builder = ort::init_from(library).map_err(|err| err.to_string())?;
    let forward: ort::logging::LoggerFunction = Arc::new(|level, category, _, place, message| match level {
        LogLevel::Error | LogLevel::Fatal => {
            tracing::error!(target: "onnxruntime", category, place, message, "onnx runtime reports");
        }
        LogLevel::Warning => {
            tracing::warn!(target: "onnxruntime", category, place, message, "onnx runtime reports");
        }
        LogLevel::Verbose | LogLevel::Info => {
            tracing::trace!(target: "onnxruntime", category, place, message, "onnx runtime reports");
        }
    });
    let environment = builder
        .with_name("pointsman")
        .with_telemetry(false)
        .with_logger(forward)
        .build()
        .map_err(|err| err.to_string())?;
    // Otherwise every operation of every run formats messages that nobody reads.
    environment.set_log_level(LogLevel::Warning);
    Ok(environment)
}

/// Whether the file is a whole library. The loader maps a file that was cut off and then the process dies on the first
/// access beyond its end, so the lengths in its header are compared with the file before.
fn check(library: &Path) -> Result<(), String> {
    let mut file = File::open(library).map_err(|err| err.to_string())?;
    let length = file.metadata().map_err(|err| err.to_string())?.len();
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let mut header = [0u8; 64];
    match file.read_exact(&mut header) {
        Ok(()) => {}
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Err("not a shared library".to_owned()),
        Err(err) => return Err(err.to_string()),
    }
    if !header.starts_with(b"\x7fELF") {
        return Err("not a shared library".to_owned());
    }
    // The table of sections stands at the end of the file. Other word sizes and byte orders are refused by the loader.
    let (wide, little_endian) = (header[4] == 2, header[5] == 1);
    if wide && little_endian {
        let start = u64::from_le_bytes(header[40..48].try_into().expect("eight bytes"));
        let size = u16::from_le_bytes([header[58], header[59]]);
        let count = u16::from_le_bytes([header[60], header[61]]);
        let end = start.saturating_add(u64::from(size) * u64::from(count));
        if end > length {
            return Err(format!("the file is cut off: {length} bytes, its header speaks of {end}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fetched() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(FETCHED)
    }

    fn refused(named: &Path) -> String {
        find(Some(named), |library: &Path| -> Result<(), String> { panic!("{} was loaded", library.display()) })
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_named_library_that_cannot_be_used_is_an_error_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let text = dir.path().join("libonnxruntime.so");
        std::fs::write(&text, "no library at all ".repeat(10)).unwrap();
        let message = refused(&text);
        assert!(message.contains("not a shared library") && message.contains("`make setup`"), "{message}");
        std::fs::write(&text, "").unwrap();
        assert!(refused(&text).contains("not a shared library"));
        assert!(refused(&dir.path().join("absent.so")).contains("absent.so"));
        assert!(refused(tempfile::tempdir().unwrap().path()).contains("holds no library"));
    }

    #[test]
    fn a_library_that_was_cut_off_is_refused_before_it_is_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let whole = library_in(&fetched()).expect("`make setup` has run");
        assert_eq!(check(&whole), Ok(()));
        let cut = dir.path().join("libonnxruntime.so.1.0.0");
        std::fs::write(&cut, &std::fs::read(&whole).unwrap()[..1_000_000]).unwrap();
        assert!(refused(dir.path()).contains("cut off"), "{}", refused(dir.path()));
    }

    #[test]
    fn without_a_name_all_places_are_tried_and_listed() {
        let mut seen = Vec::new();
        let message = find(None, |library| -> Result<(), String> {
            seen.push(library.to_owned());
            Err("does not load".to_owned())
        })
        .unwrap_err()
        .to_string();
        assert_eq!(seen.last().unwrap(), Path::new(&plain_name()));
        assert!(message.contains("`make setup`") && message.contains("does not load"), "{message}");
    }

    #[test]
    fn a_folder_offers_its_newest_library() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["libonnxruntime.so.1.24.1", "libonnxruntime.so.1.32.0", "libonnxruntime.so.1.33.0.7.part"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::write(dir.path().join("libonnxruntime_providers_shared.so"), "").unwrap();
        if cfg!(target_os = "linux") {
            assert_eq!(library_in(dir.path()), Some(dir.path().join("libonnxruntime.so.1.32.0")));
            std::fs::write(dir.path().join("libonnxruntime.so"), "").unwrap();
            assert_eq!(library_in(dir.path()), Some(dir.path().join("libonnxruntime.so")));
        }
    }
}
