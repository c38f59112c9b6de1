//! SVG by hand: a sheet to write elements on, and the look that all pictures share.

use std::fmt::{self, Write};

/// Colours for a light and a dark surround. What they tell is told by shape as well.
const STYLE: &str = "\
.bg{fill:#fff}.band{fill:#f3f5f8}text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2933}\
.title{font-size:17px;font-weight:600}.name{font-weight:600}.soft-text{fill:#566270;font-size:12px}\
.mid{text-anchor:middle}.end{text-anchor:end}\
.grid{stroke:#d4dae2}.base{stroke:#98a3b1}.span{stroke:#566270;fill:none}\
.arrive{fill:#7b8794}.admit{fill:#1668b3}.refuse{stroke:#c2410c;stroke-width:1.7;fill:none}\
.delay{fill:#fff;stroke:#7c3aad;stroke-width:1.4}.link{stroke:#7c3aad;stroke-width:.7;opacity:.5;fill:none}\
.leave{stroke:#7c3aad;stroke-width:2.4;fill:none}.over{fill:#fff;stroke:#a16207;stroke-width:1.6}\
.area{fill:#1668b3;opacity:.2}.line{stroke:#1668b3;fill:none;stroke-width:1.4}\
.limit{stroke:#c2410c;stroke-dasharray:5 3;fill:none}.lost{stroke:#1668b3;stroke-dasharray:3 2;fill:none;stroke-width:1.4}\
@media(prefers-color-scheme:dark){\
.bg{fill:#11161d}.band{fill:#19202a}text{fill:#e4e9ef}.soft-text{fill:#a9b4c0}\
.grid{stroke:#2e3844}.base{stroke:#667382}.span{stroke:#a9b4c0}\
.arrive{fill:#93a0ae}.admit{fill:#5aa9f0}.refuse{stroke:#ff8a5c}\
.delay{fill:#11161d;stroke:#c79bf2}.link{stroke:#c79bf2}.leave{stroke:#c79bf2}.over{fill:#11161d;stroke:#e5b93c}\
.area{fill:#5aa9f0}.line{stroke:#5aa9f0}.limit{stroke:#ff8a5c}.lost{stroke:#5aa9f0}}";

/// A sheet being filled from the top.
pub(crate) struct Sheet {
    body: String,
}

/// Side of a square mark; the others are as large.
pub(crate) const MARK: f64 = 5.4;

/// The shape of a mark, around its centre.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Filled square.
    Square,
    /// A cross.
    Cross,
    /// Hollow triangle, pointing on.
    Triangle,
    /// Hollow diamond.
    Diamond,
    /// Upright bar.
    Bar,
}

impl Sheet {
    pub(crate) fn new() -> Self {
        Self { body: String::new() }
    }

    pub(crate) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) -> fmt::Result {
        writeln!(
            self.body,
            r#"<text class="{class}" x="{}" y="{}">{}</text>"#,
            Num(x),
            Num(y),
            Escaped(text)
        )
    }

    pub(crate) fn rect(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
    ) -> fmt::Result {
        let (x, y, width, height) = (Num(x), Num(y), Num(width), Num(height));
        writeln!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#
        )
    }

    pub(crate) fn path(&mut self, class: &str, path: &str) -> fmt::Result {
        if path.is_empty() {
            return Ok(());
        }
        writeln!(self.body, r#"<path class="{class}" d="{path}"/>"#)
    }

    /// A straight line.
    pub(crate) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) -> fmt::Result {
        self.path(class, &line(from, to))
    }

    /// The whole file.
    pub(crate) fn finish(self, (width, height): (f64, f64), title: &str, desc: &str) -> String {
        let (width, height) = (Num(width), Num(height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-labelledby=\"t d\">\n\
             <title id=\"t\">{}</title>\n<desc id=\"d\">{}</desc>\n<style>{STYLE}</style>\n\
             <rect class=\"bg\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n{}</svg>\n",
            Escaped(title),
            Escaped(desc),
            self.body,
        )
    }
}

pub(crate) fn line((x, y): (f64, f64), (to_x, to_y): (f64, f64)) -> String {
    format!("M{} {}L{} {}", Num(x), Num(y), Num(to_x), Num(to_y))
}

/// The path of marks of one shape around their centres.
pub(crate) fn marks(shape: Shape, centres: &[(f64, f64)]) -> String {
    let half = MARK / 2.0;
    let mark = |(x, y): &(f64, f64)| match shape {
        Shape::Square => format!("M{} {}h5.4v5.4h-5.4z", Num(x - half), Num(y - half)),
        Shape::Cross => format!("M{} {}l5 5m0-5l-5 5", Num(x - 2.5), Num(y - 2.5)),
        Shape::Triangle => format!("M{} {}l5 2.7-5 2.7z", Num(x - half), Num(y - half)),
        Shape::Diamond => format!("M{} {}l2.8 2.8-2.8 2.8-2.8-2.8z", Num(*x), Num(y - 2.8)),
        Shape::Bar => format!("M{} {}v10", Num(*x), Num(y - 5.0)),
    };
    centres.iter().map(mark).collect()
}

/// A coordinate to a tenth, without a needless zero.
pub(crate) struct Num(pub(crate) f64);

impl fmt::Display for Num {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.1}", self.0);
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
