//! What a name must be like so that a person who reads it in a list or a log reads what is there.

/// What is wrong with a name; none for a good one.
///
/// Banned are characters that change how the text around them is shown: controls, line ends, marks and overrides of direction, and
/// what has no width (U+200C and U+200D excepted, which scripts need). One character at least must be seen.
pub fn name_fault(text: &str) -> Option<&'static str> {
    if text.chars().any(is_hidden) {
        return Some(
            "this must not hold control characters, nor characters that are not seen or turn the direction of the text",
        );
    }
    let seen = |c: char| !c.is_whitespace() && !matches!(c, '\u{200c}' | '\u{200d}');
    (!text.is_empty() && !text.chars().any(seen)).then_some("this must not be blank")
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            // Soft hyphen; marks, overrides and isolates of direction; line and paragraph ends.
            '\u{ad}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}'
            // No width at all, fillers, anchors of annotations, tags.
            | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    // A1.4
    #[test]
    fn a_name_shows_what_it_holds() {
        for good in [
            "erp",
            "Cobran\u{e7}a \u{1f3e6}",
            "\u{627}\u{644}\u{639}",
            "\u{646}\u{200c}\u{645}",
            " a ",
            "\u{1f469}\u{200d}\u{1f4bb}",
            "",
        ] {
            assert_eq!(name_fault(good), None, "{good:?}");
        }
        for bad in [
            " ",
            "\u{a0}",
            "\u{3000} ",
            "\u{200d}",
            "a\u{202e}b",
            "a\u{202a}",
            "\u{2066}a",
            "\u{2069}a",
            "a\u{200e}",
            "a\u{200f}",
            "a\u{61c}",
            "a\u{2028}b",
            "a\u{200b}b",
            "\u{feff}a",
            "a\u{85}b",
            "a\0",
            "a\tb",
            "\u{1b}[31m",
            "\u{7f}",
            "\u{3164}",
            "a\u{e0041}",
        ] {
            assert!(name_fault(bad).is_some(), "{bad:?}");
        }
    }
}
