//! Codes that the Itanium C++ ABI gives to operators, builtin types and some names of the standard library.

/// How an operator is written in an expression, which determines the operands behind its code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorForm {
    /// `-a`
    Prefix,
    /// `a++`, or `++a` where `_` follows the code.
    Step,
    /// `a + b`
    Infix,
    /// `a.b`, `a->b`: the right operand is a name.
    Member,
    /// `a[b]`
    Subscript,
    /// `a ? b : c`
    Choice,
    /// `f(a, b)`
    Call,
    /// `static_cast<T>(a)`
    NamedCast,
    /// `sizeof (T)`
    OfType,
    /// `noexcept (a)`
    OfValue,
    New,
}

#[derive(Debug)]
pub struct Operator {
    pub code: [u8; 2],
    pub text: &'static str,
    pub form: OperatorForm,
}

const fn operator(code: &[u8; 2], text: &'static str, form: OperatorForm) -> Operator {
    Operator { code: *code, text, form }
}

/// The operators, sorted by code.
static OPERATORS: &[Operator] = {
    use OperatorForm::*;
    &[
        operator(b"aN", "&=", Infix),
        operator(b"aS", "=", Infix),
        operator(b"aa", "&&", Infix),
        operator(b"ad", "&", Prefix),
        operator(b"an", "&", Infix),
        operator(b"at", "alignof", OfType),
        operator(b"aw", "co_await", Prefix),
        operator(b"az", "alignof", Prefix),
        operator(b"cc", "const_cast", NamedCast),
        operator(b"cl", "()", Call),
        operator(b"cm", ",", Infix),
        operator(b"co", "~", Prefix),
        operator(b"cp", "()", Call),
        operator(b"dV", "/=", Infix),
        operator(b"da", "delete[]", Prefix),
        operator(b"dc", "dynamic_cast", NamedCast),
        operator(b"de", "*", Prefix),
        operator(b"dl", "delete", Prefix),
        operator(b"ds", ".*", Infix),
        operator(b"dt", ".", Member),
        operator(b"dv", "/", Infix),
        operator(b"eO", "^=", Infix),
        operator(b"eo", "^", Infix),
        operator(b"eq", "==", Infix),
        operator(b"ge", ">=", Infix),
        operator(b"gt", ">", Infix),
        operator(b"ix", "[]", Subscript),
        operator(b"lS", "<<=", Infix),
        operator(b"le", "<=", Infix),
        operator(b"ls", "<<", Infix),
        operator(b"lt", "<", Infix),
        operator(b"mI", "-=", Infix),
        operator(b"mL", "*=", Infix),
        operator(b"mi", "-", Infix),
        operator(b"ml", "*", Infix),
        operator(b"mm", "--", Step),
        operator(b"na", "new[]", New),
        operator(b"ne", "!=", Infix),
        operator(b"ng", "-", Prefix),
        operator(b"nt", "!", Prefix),
        operator(b"nw", "new", New),
        operator(b"nx", "noexcept", OfValue),
        operator(b"oR", "|=", Infix),
        operator(b"oo", "||", Infix),
        operator(b"or", "|", Infix),
        operator(b"pL", "+=", Infix),
        operator(b"pl", "+", Infix),
        operator(b"pm", "->*", Infix),
        operator(b"pp", "++", Step),
        operator(b"ps", "+", Prefix),
        operator(b"pt", "->", Member),
        operator(b"qu", "?", Choice),
        operator(b"rM", "%=", Infix),
        operator(b"rS", ">>=", Infix),
        operator(b"rc", "reinterpret_cast", NamedCast),
        operator(b"rm", "%", Infix),
        operator(b"rs", ">>", Infix),
        operator(b"sc", "static_cast", NamedCast),
        operator(b"ss", "<=>", Infix),
        operator(b"st", "sizeof", OfType),
        operator(b"sz", "sizeof", Prefix),
        operator(b"te", "typeid", OfValue),
        operator(b"ti", "typeid", OfType),
        operator(b"tw", "throw", Prefix),
    ]
};

/// The operator with a code.
pub fn operator_of(code: [u8; 2]) -> Option<&'static Operator> {
    let at = OPERATORS.binary_search_by_key(&code, |operator| operator.code).ok()?;
    Some(&OPERATORS[at])
}

/// How a literal of a builtin type is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Literal {
    /// `(char)97`
    Cast,
    /// `5ul`: its suffix.
    Suffix(&'static str),
    /// `true`
    Bool,
    /// `(float)[3f800000]`
    Float,
}

#[derive(Debug)]
pub struct Builtin {
    pub text: &'static str,
    pub literal: Literal,
}

const fn builtin(text: &'static str, literal: Literal) -> Option<Builtin> {
    Some(Builtin { text, literal })
}

/// Builtin types by letter, from `a` on.
static BUILTINS: [Option<Builtin>; 26] = {
    use self::Literal::*;
    [
        builtin("signed char", Cast),
        builtin("bool", Bool),
        builtin("char", Cast),
        builtin("double", Float),
        builtin("long double", Float),
        builtin("float", Float),
        builtin("__float128", Float),
        builtin("unsigned char", Cast),
        builtin("int", Suffix("")),
        builtin("unsigned int", Suffix("u")),
        None,
        builtin("long", Suffix("l")),
        builtin("unsigned long", Suffix("ul")),
        builtin("__int128", Cast),
        builtin("unsigned __int128", Cast),
        None,
        None,
        None,
        builtin("short", Cast),
        builtin("unsigned short", Cast),
        None,
        builtin("void", Cast),
        builtin("wchar_t", Cast),
        builtin("long long", Suffix("ll")),
        builtin("unsigned long long", Suffix("ull")),
        builtin("...", Cast),
    ]
};

/// The builtin type of a letter.
pub fn builtin_of(letter: u8) -> Option<&'static Builtin> {
    BUILTINS.get(usize::from(letter.checked_sub(b'a')?))?.as_ref()
}

/// The builtin type of a letter behind `D`.
pub fn long_builtin_of(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'a' => "auto",
        b'c' => "decltype(auto)",
        b'd' => "decimal64",
        b'e' => "decimal128",
        b'f' => "decimal32",
        b'h' => "half",
        b'i' => "char32_t",
        b'n' => "decltype(nullptr)",
        b's' => "char16_t",
        b'u' => "char8_t",
        _ => return None,
    })
}

/// A class of the standard library with a code of its own.
#[derive(Debug)]
pub struct Standard {
    pub text: &'static str,
    /// The name of its constructors.
    pub last: &'static str,
}

/// The class of a letter behind `S`.
pub fn standard_of(letter: u8) -> Option<&'static Standard> {
    static ALLOCATOR: Standard = Standard { text: "std::allocator", last: "allocator" };
    static BASIC_STRING: Standard = Standard { text: "std::basic_string", last: "basic_string" };
    static STRING: Standard = Standard {
        text: "std::basic_string<char, std::char_traits<char>, std::allocator<char> >",
        last: "basic_string",
    };
    static ISTREAM: Standard =
        Standard { text: "std::basic_istream<char, std::char_traits<char> >", last: "basic_istream" };
    static OSTREAM: Standard =
        Standard { text: "std::basic_ostream<char, std::char_traits<char> >", last: "basic_ostream" };
    static IOSTREAM: Standard =
        Standard { text: "std::basic_iostream<char, std::char_traits<char> >", last: "basic_iostream" };
    Some(match letter {
        b'a' => &ALLOCATOR,
        b'b' => &BASIC_STRING,
        b's' => &STRING,
        b'i' => &ISTREAM,
        b'o' => &OSTREAM,
        b'd' => &IOSTREAM,
        _ => return None,
    })
}

/// The prefix that is written for a special name with this code.
pub fn special_of(code: [u8; 2]) -> Option<&'static str> {
    Some(match &code {
        b"TV" => "vtable for ",
        b"TT" => "VTT for ",
        b"TI" => "typeinfo for ",
        b"TS" => "typeinfo name for ",
        b"TF" => "typeinfo fn for ",
        b"TJ" => "java Class for ",
        b"TH" => "TLS init function for ",
        b"TW" => "TLS wrapper function for ",
        b"GV" => "guard variable for ",
        b"GA" => "hidden alias for ",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_found_by_their_codes() {
        assert!(OPERATORS.is_sorted_by_key(|operator| operator.code));
        assert_eq!(operator_of(*b"pl").map(|operator| operator.text), Some("+"));
        assert_eq!(operator_of(*b"aN").map(|operator| operator.text), Some("&="));
        assert!(operator_of(*b"zz").is_none() && operator_of([0, 255]).is_none());
    }

    #[test]
    fn builtin_types_are_found_by_their_letters() {
        for (letter, text) in [(b'a', "signed char"), (b'i', "int"), (b'v', "void"), (b'y', "unsigned long long")] {
            assert_eq!(builtin_of(letter).map(|builtin| builtin.text), Some(text));
        }
        assert!(builtin_of(b'k').is_none() && builtin_of(b'A').is_none() && builtin_of(0xff).is_none());
    }
}
