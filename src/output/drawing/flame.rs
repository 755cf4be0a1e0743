//! Flame graphs: weighted stacks as folded lines, or as a self-contained SVG.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use inferno::flamegraph::color::{Color, MultiPalette, PaletteMap};
use inferno::flamegraph::{self, Palette};

use crate::destination::FlameGraph;
use crate::digits::format_ns;
use crate::output::drawing::{DrawingFile, DrawingSubject};
use crate::output::sink::{Sink, SinkProgress};
use crate::output::stack_weights::fold::MADE_AT_RUN_TIME;

/// The name of the drawing in messages.
const WHAT: &str = "flame graph";

/// Checks before the run that the file can be written at its end.
///
/// # Errors
/// The file cannot be written.
pub fn check(graph: &FlameGraph) -> Result<()> {
    graph.path().map_or_else(|| Sink::stdout().map(drop), |path| DrawingFile::check(path, WHAT))
}

/// Writes a flame graph at the end of the run, and now and then during the run.
#[derive(Debug)]
pub struct FlameWriter {
    graph: FlameGraph,
    about: DrawingSubject,
    unit: Arc<str>,
    began: Instant,
    /// None: stdout.
    file: Option<DrawingFile>,
}

impl FlameWriter {
    /// `unit` is the unit of the weights.
    pub fn new(graph: FlameGraph, about: DrawingSubject, unit: impl Into<Arc<str>>) -> FlameWriter {
        let file = graph.path().map(|path| DrawingFile::new(path, WHAT));
        FlameWriter { graph, about, unit: unit.into(), began: Instant::now(), file }
    }

    fn title(&self) -> String {
        let DrawingSubject { profiler, subject, events } = &self.about;
        let took = format_ns(self.began.elapsed().as_nanos() as u64);
        format!("perf-prof {profiler}: {subject}, {events}, {took}")
    }

    /// True when the graph must be written: at the `last` report always, at earlier ones if enough time has passed.
    pub fn is_due(&self, last: bool) -> bool {
        last || self.file.as_ref().is_some_and(DrawingFile::is_due)
    }

    /// Writes the lines that `fold` makes. `waits` shows the reading thread that a write is in progress.
    ///
    /// # Errors
    /// The file cannot be written; the reader of stdout has closed the pipe.
    pub fn write(&mut self, waits: &SinkProgress, fold: impl FnOnce() -> Vec<String>) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return self.print(&fold(), waits) };
        let is_folded = matches!(self.graph, FlameGraph::Folded(_));
        let draw = |lines: Vec<String>| if is_folded { Ok(joined(&lines).into_bytes()) } else { self.svg(&lines) };
        let result = file.write(waits, fold, draw);
        self.file = Some(file);
        result
    }

    fn print(&self, lines: &[String], waits: &SinkProgress) -> io::Result<()> {
        let stdout = Sink::stdout().map_err(|err| io::Error::other(format!("{err:#}")))?;
        let mut stdout = stdout.with_progress(waits.clone());
        for line in lines {
            let _ = writeln!(stdout.buffer, "{line}");
            stdout.flush_large()?;
        }
        stdout.flush()
    }

    fn svg(&self, lines: &[String]) -> io::Result<Vec<u8>> {
        let mut svg = Vec::new();
        if lines.is_empty() {
            nothing(&self.title(), &mut svg)?;
            return Ok(svg);
        }
        let mut options = flamegraph::Options::default();
        options.title = self.title();
        options.count_name = self.unit.to_string();
        options.colors = Palette::Multi(MultiPalette::Perl); // gives kernel frames a colour of their own
        options.hash = true; // a function has the same colour in every graph
        let mut own = own_colours(lines);
        options.palette_map = Some(&mut own);
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
            .map_err(|err| io::Error::other(format!("the graph cannot be drawn: {err}")))?;
        Ok(name_root(svg, &self.about.subject))
    }
}

/// Colours that only code generated at run time has.
fn own_colours(lines: &[String]) -> PaletteMap {
    let mut colours = PaletteMap::default();
    for line in lines {
        let stack = line.rsplit_once(' ').map_or(line.as_str(), |(stack, _)| stack);
        for name in stack.split(';').filter(|name| name.ends_with(MADE_AT_RUN_TIME)) {
            let shade =
                (name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % 50) as u8;
            colours.insert(name, Color { r: 50 + shade, g: 165 + shade, b: 165 + shade });
        }
    }
    colours
}

/// Names the root box after the subject. The library leaves the root box without text until a script in the SVG writes
/// `all`.
fn name_root(svg: Vec<u8>, subject: &str) -> Vec<u8> {
    const TITLE: &str = "<title>all (";
    const EMPTY: &str = "></text>";
    let subject = subject.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let text = match String::from_utf8(svg) {
        Ok(text) => text,
        Err(err) => return err.into_bytes(),
    };
    let Some((before, behind)) = text.split_once(TITLE) else { return text.into_bytes() };
    let group = behind.split_once("</g>").map_or(behind, |(group, _)| group);
    let behind = match group.rfind(EMPTY) {
        Some(at) => format!("{}>{subject}{}", &behind[..at], &behind[at + 1..]),
        None => behind.to_owned(),
    };
    format!("{before}<title>{subject} ({behind}").into_bytes()
}

/// Writes an SVG that says that no stack was seen.
fn nothing(title: &str, svg: &mut Vec<u8>) -> io::Result<()> {
    writeln!(
        svg,
        "<?xml version=\"1.0\" standalone=\"no\"?>\n<svg version=\"1.1\" width=\"1200\" height=\"60\" \
         xmlns=\"http://www.w3.org/2000/svg\"><text x=\"20\" y=\"35\" font-size=\"17\" font-family=\"monospace\">\
         {title}: nothing was seen</text></svg>"
    )
}

fn joined(lines: &[String]) -> String {
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use super::*;

    fn about() -> DrawingSubject {
        DrawingSubject { profiler: "test", subject: "a <b>".to_owned(), events: "x:y".to_owned() }
    }

    #[test]
    fn a_path_that_cannot_be_written_is_refused_before_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let check = |path: PathBuf| check(&FlameGraph::Svg(path));
        assert!(check(dir.path().join("a.svg")).is_ok());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "the trial leaves nothing");
        assert!(check(dir.path().join("none/a.svg")).is_err());
        assert!(check(dir.path().to_owned()).is_err());
    }

    #[test]
    fn a_file_is_replaced_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.folded");
        let mut writer = FlameWriter::new(FlameGraph::Folded(path.clone()), about(), "samples");
        for lines in [vec!["a;b 1".to_owned(), "a;c 2".to_owned()], vec!["a;b 3".to_owned()], Vec::new()] {
            writer.write(&SinkProgress::default(), || lines.clone()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), joined(&lines));
        }
        let rights = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(rights(), 0o600, "kernel addresses are for its owner alone");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        writer.write(&SinkProgress::default(), || vec!["a 1".to_owned()]).unwrap();
        assert_eq!(rights(), 0o640, "the permissions are kept");
        assert!(writer.is_due(true));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let err = writer.write(&SinkProgress::default(), || vec!["a 1".to_owned()]).unwrap_err();
        assert!(err.to_string().contains("a.folded"), "{err}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_svg_needs_no_other_file() {
        let writer = FlameWriter::new(FlameGraph::Svg("x.svg".into()), about(), "samples");
        let lines: Vec<String> =
            ["a;main;<b>&\"c\" 75", "a;main;d_[k] 20", "a;main;Lj:_[j] 5"].into_iter().map(str::to_owned).collect();
        let svg = String::from_utf8(writer.svg(&lines).unwrap()).unwrap();
        assert!(svg.starts_with("<?xml") && svg.contains("</svg>"), "{svg}");
        assert!(svg.contains("&lt;b&gt;&amp;") && svg.contains("75 samples, 75.00%"), "{svg}");
        assert!(svg.contains("perf-prof test: a &lt;b&gt;, x:y, "), "{svg}");
        assert!(svg.contains("<title>a &lt;b&gt; (100 samples, 100%)") && svg.contains(">a &lt;b&gt;</text>"), "{svg}");
        let green_blue = |name: &str| {
            let colour = svg.split_once(&format!("<title>{name} (")).unwrap().1.split_once("rgb(").unwrap().1;
            let parts: Vec<u8> = colour.split([',', ')']).take(3).map(|part| part.trim().parse().unwrap()).collect();
            (parts[1], parts[2])
        };
        let (green, blue) = green_blue("Lj:");
        assert!(green == blue && blue >= 165, "made at run time: {green} {blue}");
        assert!(green_blue("d").1 < 165 && green_blue("main").1 < 165);
        let outside = |mark: &str| svg.matches(mark).filter(|_| true).count();
        assert_eq!(outside("src=") + outside("@import") + outside("xlink:href=\"http"), 0);
        let svg = String::from_utf8(writer.svg(&[]).unwrap()).unwrap();
        assert!(svg.contains("nothing was seen") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
