//! `tidegate config`: every setting, its value, and who said so.

use std::fmt::Write as _;

use crate::args::{ConfigArgs, ConfigFormat};
use crate::failure::{Ending, say, write_out};
use crate::settings::{Environment, Kind, MAPPED, Resolved, SETTINGS, Settings};

/// Prints all settings.
pub(crate) fn run(args: &ConfigArgs) -> Ending {
    if args.format == ConfigFormat::Markdown {
        return write_out(reference().as_bytes());
    }
    let settings = Settings::resolve(&args.flags, &Environment::of_process())?;
    for note in &settings.notes {
        say(&format!("note: {note}\n"));
    }
    let text = match args.format {
        ConfigFormat::Json => json(&settings),
        _ => table(&settings),
    };
    // Also where a value cannot be used: this is where one comes to see why.
    write_out(text.as_bytes())?;
    settings.typed()?;
    Ok(std::process::ExitCode::SUCCESS)
}

fn table(settings: &Settings) -> String {
    let rows: Vec<_> = settings
        .all()
        .iter()
        .map(|resolved| {
            (
                resolved.setting.name,
                resolved.shown().unwrap_or("-".to_owned()),
                resolved.source.to_string(),
            )
        })
        .collect();
    let width = |of: fn(&(&str, String, String)) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let (names, values) = (width(|row| row.0.len()), width(|row| row.1.chars().count().min(40)));
    let mut out = String::new();
    for (name, value, source) in rows {
        let _ = writeln!(out, "{name:names$}  {value:values$}  {source}");
    }
    out
}

fn json(settings: &Settings) -> String {
    let entry = |resolved: &Resolved| {
        let value = match resolved.setting.kind {
            Kind::List => serde_json::json!(resolved.values),
            _ => serde_json::json!(resolved.shown()),
        };
        let source = resolved.source.to_string();
        (resolved.setting.name.to_owned(), serde_json::json!({ "value": value, "source": source }))
    };
    let all: serde_json::Map<_, _> = settings.all().iter().map(entry).collect();
    format!("{:#}\n", serde_json::Value::Object(all))
}

/// The tables of the reference in the documentation.
fn reference() -> String {
    let mut out = String::from("| setting | default | what it does |\n| --- | --- | --- |\n");
    for setting in SETTINGS {
        let default = match setting.default {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let _ = writeln!(out, "| `{}` | {default} | {} |", setting.name, setting.help);
    }
    out.push_str("\n| variable of Lyft's service | setting |\n| --- | --- |\n");
    for mapped in MAPPED {
        let _ = writeln!(out, "| {} | `{}` |", mapped.variables, mapped.setting);
    }
    out
}
