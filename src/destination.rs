//! Where results go besides the tables: files of drawings, and the address of metrics. These are values of options; the
//! output writes there.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Where a flame graph goes: `--flame-graph`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlameGraph {
    Svg(PathBuf),
    Folded(PathBuf),
    /// Folded lines, in place of the other results.
    Stdout,
}

/// Extensions of other file formats. A flame graph in such a file is surely a mistake.
const OTHER_FORMATS: [&str; 15] =
    ["csv", "gif", "gz", "htm", "html", "jpeg", "jpg", "json", "pb", "pdf", "perf", "png", "pprof", "svg", "txt"];

const NO_FILE: &str = "it is no file: give the name of one, or - for folded lines on stdout";

impl FlameGraph {
    /// Reads the value of the option: the extension of the file name selects the format. A name without one gets `.folded`.
    ///
    /// # Errors
    /// An extension of another format; a directory or a device.
    pub fn parse(text: &str) -> Result<FlameGraph, String> {
        let path = Path::new(text);
        let is_other = |ending: &str| OTHER_FORMATS.contains(&ending.to_ascii_lowercase().as_str());
        let is_bare_ending = ["svg", ".svg", "folded", ".folded"].contains(&text);
        match path.extension().and_then(|ending| ending.to_str()) {
            _ if text == "-" || text.is_empty() => Ok(FlameGraph::Stdout),
            _ if text.ends_with('/') => Err(NO_FILE.to_owned()),
            Some("svg") => Ok(FlameGraph::Svg(path.to_owned())),
            Some("folded") => Ok(FlameGraph::Folded(path.to_owned())),
            ending if is_bare_ending || ending.is_some_and(is_other) => {
                Err("the name must end with .svg or .folded, or be - for folded lines on stdout".to_owned())
            }
            _ if path.exists() && !path.is_file() => Err(NO_FILE.to_owned()),
            // `with_extension` would cut off what follows the last point.
            _ => Ok(FlameGraph::Folded(format!("{text}.folded").into())),
        }
    }

    /// The file to write. None: stdout.
    pub fn path(&self) -> Option<&Path> {
        match self {
            FlameGraph::Svg(path) | FlameGraph::Folded(path) => Some(path),
            FlameGraph::Stdout => None,
        }
    }
}

/// Where a heat map goes: `--heatmap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heatmap {
    Svg(PathBuf),
    /// Below the tables, at the end.
    Text,
}

impl Heatmap {
    /// Reads the value of the option.
    ///
    /// # Errors
    /// An unknown extension.
    pub fn parse(text: &str) -> Result<Heatmap, String> {
        let path = Path::new(text);
        match path.extension().and_then(|ending| ending.to_str()) {
            _ if text == "-" => Ok(Heatmap::Text),
            Some("svg") => Ok(Heatmap::Svg(path.to_owned())),
            _ => Err("the name must end with .svg, or be - for text below the tables".to_owned()),
        }
    }

    /// The file to write. None: it is text among the results.
    pub fn path(&self) -> Option<&Path> {
        if let Heatmap::Svg(path) = self { Some(path) } else { None }
    }
}

/// Where `--metrics` listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsAddress(pub SocketAddr);

impl MetricsAddress {
    /// # Errors
    /// The text is neither `ADDR:PORT` nor a port.
    pub fn parse(text: &str) -> Result<MetricsAddress, String> {
        let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
        let at_port = port.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let address = at_port.or_else(|_| text.parse::<SocketAddr>());
        address.map(MetricsAddress).map_err(|_| {
            "neither a port, as in 9100, nor an address with a port, as in 0.0.0.0:9100 or [::1]:9100".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_of_a_flame_graph_selects_its_format() {
        let cases = [
            ("-", Some(FlameGraph::Stdout)),
            ("a.svg", Some(FlameGraph::Svg("a.svg".into()))),
            ("/x.y/a b.folded", Some(FlameGraph::Folded("/x.y/a b.folded".into()))),
            ("a.png", None),
            ("svg", None),
            (".svg", None),
            ("a.SVG", None),
            ("a.folded/", None),
            ("/", None),
            ("/dev/null", None),
            ("", Some(FlameGraph::Stdout)),
            ("cpu", Some(FlameGraph::Folded("cpu.folded".into()))),
            ("/x.y/web1.2026-11-25", Some(FlameGraph::Folded("/x.y/web1.2026-11-25.folded".into()))),
        ];
        for (text, want) in cases {
            assert_eq!(FlameGraph::parse(text).ok(), want, "{text:?}");
        }
    }

    #[test]
    fn the_extension_of_a_heat_map_is_that_of_an_svg() {
        let cases = [
            ("-", Some(Heatmap::Text)),
            ("a.svg", Some(Heatmap::Svg("a.svg".into()))),
            ("a.folded", None),
            ("", None),
            (".svg", None),
        ];
        for (text, want) in cases {
            assert_eq!(Heatmap::parse(text).ok(), want, "{text:?}");
        }
    }

    #[test]
    fn a_port_alone_is_on_this_host() {
        let parsed = |text| MetricsAddress::parse(text).map(|MetricsAddress(address)| address.to_string()).ok();
        let cases = [
            ("9100", Some("127.0.0.1:9100")),
            (":9100", Some("127.0.0.1:9100")),
            ("0", Some("127.0.0.1:0")),
            ("0.0.0.0:9100", Some("0.0.0.0:9100")),
            ("[::]:9100", Some("[::]:9100")),
            ("127.0.0.1", None),
            ("localhost:9100", None),
            ("65536", None),
            ("", None),
            (":", None),
            ("::1:9100", None),
        ];
        for (text, want) in cases {
            assert_eq!(parsed(text).as_deref(), want, "{text:?}");
        }
    }
}
