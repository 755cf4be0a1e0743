//! The licences of all packages in the binary are permissive.

use std::process::Command;

use serde_json::Value;

/// Each package needs but one of the alternatives that it offers.
const PERMISSIVE: [&str; 8] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// Packages under another licence, which allows linking with them unchanged.
const EXCEPTIONS: [(&str, &str); 1] = [("inferno", "CDDL-1.0")];

/// Whether an expression such as `(MIT OR Apache-2.0) AND Unicode-3.0` can be met.
fn is_permissive(expression: &str) -> bool {
    // `AND` binds closer than `OR`; parentheses are only around alternatives. `/` is an old way to write OR.
    let expression = expression.replace(" / ", " OR ").replace('/', " OR ");
    if expression.contains('(') {
        let parts = expression.split(" AND ");
        return parts.into_iter().all(|part| is_permissive(part.trim_start_matches('(').trim_end_matches(')')));
    }
    let all = |part: &str| part.split(" AND ").all(|licence| PERMISSIVE.contains(&licence.trim()));
    expression.split(" OR ").any(all)
}

#[test]
fn expressions_are_understood() {
    for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-2.0) AND Unicode-3.0", "Unlicense OR MIT"] {
        assert!(is_permissive(good), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0", "", "CDDL-1.0", "MITX"] {
        assert!(!is_permissive(bad), "{bad}");
    }
}

#[test]
fn dependencies_are_permissive() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Dependencies of other systems are left out.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new(cargo)
        .args(["metadata", "--locked", "--format-version", "1", "--filter-platform", &host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let refused: Vec<String> = packages
        .iter()
        .map(|package| (package["name"].as_str().unwrap(), package["license"].as_str().unwrap_or("no licence")))
        .filter(|(name, licence)| !is_permissive(licence) && !EXCEPTIONS.contains(&(name, licence)))
        .map(|(name, licence)| format!("{name}: {licence}"))
        .collect();
    assert!(packages.len() > 30 && refused.is_empty(), "{refused:?}");
}
