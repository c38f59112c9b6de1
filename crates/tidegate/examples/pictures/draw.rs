//! Lays a picture out: rows on one time axis, each with its marks, its curve and its tally.

use std::fmt::{self, Write};

use super::drive::{Event, Millis, Outcome};
use super::svg::{Num, Shape, Sheet, line, marks};

/// Some rows of requests over the same time.
pub(crate) struct Picture {
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    pub(crate) subtitle: &'static str,
    /// Where the time axis ends.
    pub(crate) end: Millis,
    /// Stretches of time with a name, above the rows.
    pub(crate) spans: Vec<Span>,
    pub(crate) rows: Vec<Row>,
}

/// A stretch of time with a name.
pub(crate) struct Span {
    pub(crate) from: Millis,
    pub(crate) to: Millis,
    pub(crate) text: String,
}

/// One line of a picture.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) note: &'static str,
    pub(crate) body: Body,
    /// Whether it holds requests: then a lane below shows when they go on.
    pub(crate) shapes: bool,
    pub(crate) curve: Option<Curve>,
    /// Windows of this row's own, drawn behind it.
    pub(crate) windows: Vec<(Millis, Millis)>,
    /// Stretches of time with a name, below the row.
    pub(crate) spans: Vec<Span>,
    /// What it comes to, beside the row.
    pub(crate) tally: Vec<String>,
}

/// What a row shows.
pub(crate) enum Body {
    /// Requests as they come, before anybody decides.
    Arrivals(Vec<Millis>),
    /// What became of them.
    Events(Vec<Event>),
    /// Permits, and what became of those who asked for one.
    Permits(Vec<Stay>),
}

/// A request that holds a permit for a while.
#[derive(Clone, Copy)]
pub(crate) struct Stay {
    pub(crate) event: Event,
    /// When its permit is free again.
    pub(crate) until: Millis,
    /// Whether it never gave the permit back.
    pub(crate) lost: bool,
}

/// A number over time, in steps.
pub(crate) struct Curve {
    pub(crate) values: Vec<(Millis, u64)>,
    pub(crate) label: &'static str,
    /// Drawn as a line that should not be crossed.
    pub(crate) limit: Option<u64>,
    pub(crate) top: u64,
}

const WIDTH: f64 = 980.0;
const LEFT: f64 = 200.0;
const RIGHT: f64 = 850.0;
/// From one mark of a stack to the next.
const STEP: f64 = 7.0;
const LANE: f64 = 7.0;
const LEAVING: f64 = 26.0;
const CURVE: f64 = 46.0;
const GAP: f64 = 14.0;
/// How outcomes are drawn.
const SHAPES: [(&str, Shape); 4] = [
    ("admit", Shape::Square),
    ("over", Shape::Diamond),
    ("delay", Shape::Triangle),
    ("refuse", Shape::Cross),
];
/// A row is at least as high as its two lines of text.
const LEAST: f64 = 32.0;

impl Picture {
    /// The file's text.
    pub(crate) fn svg(&self) -> Result<String, fmt::Error> {
        let mut sheet = Sheet::new();
        sheet.text("title", 16.0, 28.0, self.title)?;
        sheet.text("soft-text", 16.0, 48.0, self.subtitle)?;
        self.legend(&mut sheet, 70.0)?;
        let top = if self.spans.is_empty() { 92.0 } else { 112.0 };
        let bottom = top + self.rows.iter().map(|row| row.height() + GAP).sum::<f64>();
        self.axis(&mut sheet, top, bottom)?;
        for span in &self.spans {
            self.bracket(&mut sheet, span, top - 6.0, -6.0)?;
        }
        let mut y = top;
        for (nth, row) in self.rows.iter().enumerate() {
            let height = row.height() + GAP;
            if nth % 2 == 0 {
                sheet.rect("band", (8.0, y), (LEFT - 16.0, height))?;
                sheet.rect("band", (RIGHT + 8.0, y), (WIDTH - RIGHT - 16.0, height))?;
            }
            self.row(&mut sheet, row, y + GAP / 2.0)?;
            y += height;
        }
        Ok(sheet.finish((WIDTH, bottom + 34.0), self.title, &self.desc()?))
    }

    /// The picture in words.
    fn desc(&self) -> Result<String, fmt::Error> {
        let mut desc = String::from(self.subtitle);
        for row in &self.rows {
            write!(desc, " {}", row.name)?;
            if !row.note.is_empty() {
                write!(desc, " ({})", row.note.replace('\n', " "))?;
            }
            write!(desc, ": {}.", row.tally.join(", "))?;
        }
        Ok(desc)
    }

    fn x(&self, at: Millis) -> f64 {
        self.x_us(at * 1000)
    }

    fn x_us(&self, at_us: u64) -> f64 {
        LEFT + (RIGHT - LEFT) * (at_us as f64) / (self.end as f64 * 1000.0)
    }

    fn legend(&self, sheet: &mut Sheet, y: f64) -> fmt::Result {
        let bodies = || self.rows.iter().map(|row| &row.body);
        let arrivals = bodies().any(|body| matches!(body, Body::Arrivals(_)));
        let permits = bodies().any(|body| matches!(body, Body::Permits(_)));
        let shapes = self.rows.iter().any(|row| row.shapes);
        let shows = |wanted: &str| {
            let mut events = self.rows.iter().flat_map(Row::events);
            events.any(|event| class(&event.outcome) == wanted)
        };
        let entries = [
            (arrivals, "arrive", Shape::Square, "a request"),
            (shows("admit") && !permits, "admit", Shape::Square, "admitted at once"),
            (shows("over"), "over", Shape::Diamond, "admitted above the limit"),
            (shows("delay"), "delay", Shape::Triangle, "admitted, but held"),
            (shapes, "leave", Shape::Bar, "goes on"),
            (shows("refuse"), "refuse", Shape::Cross, "refused"),
        ];
        let mut x = LEFT;
        if permits {
            sheet.rect("admit", (x - 3.0, y - 2.7), (22.0, 5.4))?;
            sheet.text("", x + 25.0, y + 4.5, "in flight, holds a permit")?;
            x += 205.0;
        }
        for (_, class, shape, text) in entries.into_iter().filter(|(shown, ..)| *shown) {
            sheet.path(class, &marks(shape, &[(x, y)]))?;
            sheet.text("", x + 9.0, y + 4.5, text)?;
            x += 30.0 + 7.0 * text.len() as f64;
        }
        Ok(())
    }

    fn axis(&self, sheet: &mut Sheet, top: f64, bottom: f64) -> fmt::Result {
        for at in (0..=self.end).step_by(1000) {
            sheet.line("grid", (self.x(at), top), (self.x(at), bottom + 4.0))?;
            let text = format!("{} s", at / 1000);
            sheet.text("soft-text mid", self.x(at), bottom + 20.0, &text)?;
        }
        Ok(())
    }

    fn bracket(&self, sheet: &mut Sheet, span: &Span, y: f64, text_dy: f64) -> fmt::Result {
        let (from, to) = (self.x(span.from) - 3.0, self.x(span.to) + 3.0);
        let tick = if text_dy < 0.0 { 4.0 } else { -4.0 };
        let (left, right, y_text) = (Num(from), Num(to), Num(y + tick));
        sheet.path("span", &format!("M{left} {y_text}V{}H{right}V{y_text}", Num(y)))?;
        sheet.text("soft-text mid", f64::midpoint(from, to), y + text_dy, &span.text)
    }

    fn row(&self, sheet: &mut Sheet, row: &Row, top: f64) -> fmt::Result {
        sheet.text("name", 16.0, top + 12.0, row.name)?;
        for (nth, note) in row.note.split('\n').enumerate() {
            sheet.text("soft-text", 16.0, top + 28.0 + 15.0 * nth as f64, note)?;
        }
        for (nth, tally) in row.tally.iter().enumerate() {
            let class = if nth == 0 { "name" } else { "soft-text" };
            sheet.text(class, RIGHT + 16.0, top + 12.0 + 16.0 * nth as f64, tally)?;
        }
        let base = top + row.stack_height();
        for (from, to) in row.windows.iter().filter(|(from, _)| *from < self.end) {
            let (from, to) = (self.x(*from), self.x((*to).min(self.end)));
            sheet.rect("band", (from + 1.0, top - 4.0), (to - from - 2.0, base - top + 4.0))?;
        }
        match &row.body {
            Body::Arrivals(arrivals) => {
                sheet.line("base", (LEFT, base), (RIGHT, base))?;
                sheet.path("arrive", &marks(Shape::Square, &self.stacked(arrivals, base)))?;
            }
            Body::Events(events) => self.events(sheet, row, events, base)?,
            Body::Permits(stays) => self.permits(sheet, stays, row.lanes(), top)?,
        }
        if let Some(curve) = &row.curve {
            self.curve(sheet, curve, base + row.leaving_height() + CURVE)?;
        }
        let below = base + row.leaving_height() + row.curve.as_ref().map_or(0.0, |_| CURVE);
        row.spans.iter().try_for_each(|span| self.bracket(sheet, span, below + 6.0, 13.0))
    }

    /// Where marks go: requests of the same moment stand on each other.
    fn stacked(&self, arrivals: &[Millis], base: f64) -> Vec<(f64, f64)> {
        let mut below = 0.0;
        let mut last = None;
        let place = |at: &Millis| {
            below = if last == Some(*at) { below + 1.0 } else { 0.0 };
            last = Some(*at);
            (self.x(*at), base - 4.0 - STEP * below)
        };
        arrivals.iter().map(place).collect()
    }

    fn events(&self, sheet: &mut Sheet, row: &Row, events: &[Event], base: f64) -> fmt::Result {
        sheet.line("base", (LEFT, base), (RIGHT, base))?;
        let arrivals: Vec<Millis> = events.iter().map(|event| event.at).collect();
        let centres = self.stacked(&arrivals, base);
        if row.leaving_height() > 0.0 {
            self.leaving(sheet, events, base)?;
        }
        for (wanted, shape) in SHAPES {
            let chosen = events.iter().zip(&centres);
            let chosen: Vec<(f64, f64)> = chosen
                .filter(|(event, _)| class(&event.outcome) == wanted)
                .map(|(_, centre)| *centre)
                .collect();
            sheet.path(wanted, &marks(shape, &chosen))?;
        }
        Ok(())
    }

    /// The lane below a shaper's arrivals, on which its requests go on.
    fn leaving(&self, sheet: &mut Sheet, events: &[Event], base: f64) -> fmt::Result {
        let lane = base + LEAVING - 7.0;
        let went = events.iter().filter_map(|event| Some((event, event.went_us()?)));
        let went: Vec<(f64, f64)> = went
            .filter(|(_, at_us)| *at_us <= self.end * 1000)
            .map(|(event, at_us)| (self.x(event.at), self.x_us(at_us)))
            .collect();
        let links = went.iter().filter(|(from, to)| to > from);
        let links: String =
            links.map(|(from, to)| line((*from, base + 1.0), (*to, lane - 5.0))).collect();
        sheet.path("link", &links)?;
        let bars: Vec<(f64, f64)> = went.iter().map(|(_, to)| (*to, lane)).collect();
        sheet.path("leave", &marks(Shape::Bar, &bars))
    }

    fn permits(&self, sheet: &mut Sheet, stays: &[Stay], lanes: usize, top: f64) -> fmt::Result {
        let y = |lane: usize| top + 8.0 + 2.0 * LANE * lane as f64;
        for lane in 0..lanes {
            sheet.line("grid", (LEFT, y(lane)), (RIGHT, y(lane)))?;
        }
        let refused: Vec<Millis> = stays
            .iter()
            .filter(|stay| stay.event.outcome == Outcome::Refused)
            .map(|stay| stay.event.at)
            .collect();
        let base = y(lanes) + 4.0;
        sheet.path("refuse", &marks(Shape::Cross, &self.stacked(&refused, base)))?;
        for (stay, lane) in in_lanes(stays) {
            let (from, to) = (self.x(stay.event.at), self.x(stay.until.min(self.end)));
            let class = if stay.lost { "lost" } else { "admit" };
            sheet.rect(class, (from, y(lane) - 4.0), (to - from - 1.5, 8.0))?;
        }
        Ok(())
    }

    fn curve(&self, sheet: &mut Sheet, curve: &Curve, floor: f64) -> fmt::Result {
        let y = |value: u64| floor - (CURVE - 14.0) * value as f64 / curve.top as f64;
        let mut steps = String::new();
        let mut last = None;
        for (at, value) in &curve.values {
            match last {
                None => write!(steps, "M{} {}", Num(self.x(*at)), Num(y(*value)))?,
                Some(last) if last == value => continue,
                Some(_) => write!(steps, "H{}V{}", Num(self.x(*at)), Num(y(*value)))?,
            }
            last = Some(value);
        }
        write!(steps, "H{}", Num(RIGHT))?;
        let (left, floor_text) = (Num(LEFT), Num(floor));
        sheet.path("area", &format!("{steps}V{floor_text}H{left}z"))?;
        sheet.path("line", &steps)?;
        sheet.line("base", (LEFT, floor), (RIGHT, floor))?;
        sheet.text("soft-text end", LEFT - 14.0, floor - 2.0, curve.label)?;
        if let Some(limit) = curve.limit {
            sheet.line("limit", (LEFT, y(limit)), (RIGHT, y(limit)))?;
            sheet.text("soft-text end", LEFT - 14.0, y(limit) - 3.0, &format!("limit {limit}"))?;
        }
        Ok(())
    }
}

impl Row {
    fn events(&self) -> Vec<Event> {
        match &self.body {
            Body::Arrivals(_) => Vec::new(),
            Body::Events(events) => events.clone(),
            Body::Permits(stays) => stays.iter().map(|stay| stay.event).collect(),
        }
    }

    fn height(&self) -> f64 {
        let curve = self.curve.as_ref().map_or(0.0, |_| CURVE);
        let spans = if self.spans.is_empty() { 0.0 } else { 18.0 };
        let lines = 16.0 * (self.note.split('\n').count() + 1).max(self.tally.len()) as f64;
        (self.stack_height() + self.leaving_height() + curve + spans).max(LEAST).max(lines)
    }

    fn stack_height(&self) -> f64 {
        let times: Vec<Millis> = match &self.body {
            Body::Arrivals(arrivals) => arrivals.clone(),
            Body::Events(events) => events.iter().map(|event| event.at).collect(),
            Body::Permits(_) => return 2.0 * LANE * (self.lanes() + 1) as f64 + 6.0,
        };
        let highest =
            times.iter().map(|at| times.iter().filter(|other| *other == at).count()).max();
        (STEP * highest.unwrap_or(0) as f64 + 2.0).max(LEAST - 6.0)
    }

    fn leaving_height(&self) -> f64 {
        if self.shapes { LEAVING } else { 0.0 }
    }

    fn lanes(&self) -> usize {
        match &self.body {
            Body::Permits(stays) => {
                in_lanes(stays).iter().map(|(_, lane)| lane + 1).max().unwrap_or(0)
            }
            Body::Arrivals(_) | Body::Events(_) => 0,
        }
    }
}

/// The style of an outcome.
fn class(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Admitted => "admit",
        Outcome::Soft => "over",
        Outcome::Delayed { .. } => "delay",
        Outcome::Refused => "refuse",
    }
}

/// Those who hold a permit, each in the first lane that is free.
fn in_lanes(stays: &[Stay]) -> Vec<(Stay, usize)> {
    let mut free_at: Vec<Millis> = Vec::new();
    let mut placed = Vec::new();
    for stay in stays.iter().filter(|stay| stay.event.outcome != Outcome::Refused) {
        let lane = free_at.iter().position(|free| *free <= stay.event.at).unwrap_or(free_at.len());
        if lane == free_at.len() {
            free_at.push(0);
        }
        free_at[lane] = stay.until;
        placed.push((*stay, lane));
    }
    placed
}
