//! Draws the pictures of `docs/algorithms.md`: the engine itself decides every mark in them.
//!
//! `cargo run -p tidegate --example pictures` writes `docs/pictures/*.svg`;
//! with `-- --check` it only says which of them are not what the engine does today.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

mod draw;
mod drive;
mod scenes;
mod svg;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

/// One file: its name and what it holds.
pub(crate) struct File {
    pub(crate) name: &'static str,
    pub(crate) text: String,
}

pub(crate) fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => write(),
        ["--check"] => check(),
        _ => {
            eprintln!("usage: pictures [--check]");
            Ok(ExitCode::from(2))
        }
    }
}

/// All pictures, as the engine decides today.
pub(crate) fn generate() -> Result<Vec<File>, Box<dyn Error>> {
    scenes::all()?
        .iter()
        .map(|picture| Ok(File { name: picture.file, text: picture.svg()? }))
        .collect()
}

/// Where the pictures are kept.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures")
}

/// The names of kept pictures that differ from what is generated, or that nobody generates.
pub(crate) fn stale() -> Result<Vec<String>, Box<dyn Error>> {
    let files = generate()?;
    let mut stale: Vec<String> = files
        .iter()
        .filter(|file| {
            fs::read_to_string(folder().join(file.name)).ok().as_ref() != Some(&file.text)
        })
        .map(|file| file.name.to_owned())
        .collect();
    for kept in fs::read_dir(folder())? {
        let name = kept?.file_name().to_string_lossy().into_owned();
        if files.iter().all(|file| file.name != name) {
            stale.push(name);
        }
    }
    stale.sort();
    stale.dedup();
    Ok(stale)
}

fn write() -> Result<ExitCode, Box<dyn Error>> {
    fs::create_dir_all(folder())?;
    for file in generate()? {
        fs::write(folder().join(file.name), &file.text)?;
        println!("docs/pictures/{} ({} bytes)", file.name, file.text.len());
    }
    Ok(ExitCode::SUCCESS)
}

fn check() -> Result<ExitCode, Box<dyn Error>> {
    let stale = stale()?;
    for name in &stale {
        println!("docs/pictures/{name} is not what the engine does");
    }
    if stale.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("hint: cargo run -p tidegate --example pictures");
    Ok(ExitCode::FAILURE)
}
