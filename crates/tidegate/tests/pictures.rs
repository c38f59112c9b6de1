//! The pictures of the documentation show what the engine does.

#![allow(clippy::print_stdout, reason = "the example talks")]

use std::error::Error;

#[path = "../examples/pictures/main.rs"]
#[allow(dead_code, reason = "what writes the files is not called here")]
mod pictures;

const PAGE: &str = include_str!("../../../docs/algorithms.md");
const BYTES_MAX: usize = 40_000;

#[test]
fn the_pictures_are_what_the_engine_does() -> Result<(), Box<dyn Error>> {
    let stale = pictures::stale()?;
    assert!(
        stale.is_empty(),
        "{stale:?} in docs/pictures differ\nhint: cargo run -p tidegate --example pictures"
    );
    Ok(())
}

#[test]
fn the_page_shows_every_picture_and_none_that_is_missing() -> Result<(), Box<dyn Error>> {
    let names: Vec<&str> = pictures::generate()?.iter().map(|file| file.name).collect();
    for name in &names {
        assert!(PAGE.contains(&format!("](pictures/{name})")), "`{name}` is not on the page");
    }
    let shown = PAGE.split("](pictures/").skip(1).filter_map(|rest| rest.split(')').next());
    for name in shown {
        assert!(names.contains(&name), "`{name}` is on the page, and nobody draws it");
    }
    Ok(())
}

#[test]
fn pictures_are_small_and_say_what_they_show() -> Result<(), Box<dyn Error>> {
    for file in pictures::generate()? {
        assert!(file.text.len() < BYTES_MAX, "`{}` has {} bytes", file.name, file.text.len());
        for part in ["<title ", "<desc ", "prefers-color-scheme:dark"] {
            assert!(file.text.contains(part), "`{}` has no `{part}`", file.name);
        }
    }
    Ok(())
}
