//! A backend of the drawing library that uses only control sequences known to all terminals.

use std::fmt::Write as _;
use std::io;

use ratatui_core::backend::{Backend, ClearType, WindowSize};
use ratatui_core::buffer::Cell;
use ratatui_core::layout::{Position, Size};
use ratatui_core::style::{Color, Modifier};

/// Collects what is to be written to the terminal.
#[derive(Debug)]
pub struct SequenceBackend {
    pub size: Size,
    /// Bytes that are not written yet.
    pub out: String,
}

impl SequenceBackend {
    pub fn new(size: Size) -> SequenceBackend {
        SequenceBackend { size, out: String::new() }
    }

    fn style(&mut self, cell: &Cell) {
        const MODIFIERS: [(Modifier, &str); 4] =
            [(Modifier::BOLD, ";1"), (Modifier::DIM, ";2"), (Modifier::UNDERLINED, ";4"), (Modifier::REVERSED, ";7")];
        self.out.push_str("\x1b[0");
        let given = MODIFIERS.into_iter().filter(|(modifier, _)| cell.modifier.contains(*modifier));
        given.for_each(|(_, code)| self.out.push_str(code));
        self.out.push_str(match cell.fg {
            Color::Red => ";31",
            Color::Green => ";32",
            Color::Yellow => ";33",
            Color::Cyan => ";36",
            Color::DarkGray => ";90",
            _ => "",
        });
        self.out.push('m');
    }
}

impl Backend for SequenceBackend {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut next: Option<(u16, u16)> = None;
        let mut style: Option<(Color, Modifier)> = None;
        for (x, y, cell) in content {
            if next != Some((x, y)) {
                let _ = write!(self.out, "\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1);
            }
            if style != Some((cell.fg, cell.modifier)) {
                self.style(cell);
                style = Some((cell.fg, cell.modifier));
            }
            self.out.push_str(cell.symbol());
            // Terminals differ in the width of non-ASCII characters, so the cursor is set explicitly after one.
            next = cell.symbol().is_ascii().then_some((x.saturating_add(1), y));
        }
        if style.is_some() {
            self.out.push_str("\x1b[0m");
        }
        Ok(())
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.out.push_str("\x1b[?25l");
        Ok(())
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.out.push_str("\x1b[?25h");
        Ok(())
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(Position::ORIGIN) // the cursor is hidden
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let Position { x, y } = position.into();
        let _ = write!(self.out, "\x1b[{};{}H", u32::from(y) + 1, u32::from(x) + 1);
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.out.push_str("\x1b[0m\x1b[2J");
        Ok(())
    }

    fn clear_region(&mut self, _part: ClearType) -> io::Result<()> {
        self.clear()
    }

    fn size(&self) -> io::Result<Size> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::default() })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(()) // the owner writes `out`
    }
}
