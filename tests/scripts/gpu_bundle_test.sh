#!/usr/bin/env bash
# gpu_bundle_test.sh SOURCE: tools/gpu-bundle collects enough for a program that uses each package. The program is
# compiled and linked with the bundle's pkg-config alone, and a missing package is reported.
set -euo pipefail
cd "$1"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bundle=$folder/"a bundle's | & name"
fail() { echo "gpu_bundle_test: $1"; exit 1; }
for part in /usr/include/{fmt,CLI,nlohmann,catch2,sodium.h,expat.h}; do [ -e "$part" ] || { echo "skipped: no $part"; exit 77; }; done
tools/gpu-bundle "$folder" 2>/dev/null && fail "it takes a folder that is no bundle"
[ -d "$folder" ] || fail "it removed a folder that is no bundle"
mkdir "$folder/bin"
printf '#!/bin/sh\n' >"$folder/bin/pkg-config"
chmod +x "$folder/bin/pkg-config"
tools/gpu-bundle "$folder/bin" 2>/dev/null && fail "it takes a folder that has another pkg-config"
[ -x "$folder/bin/pkg-config" ] || fail "it removed a folder that has another pkg-config"
tools/gpu-bundle "$bundle" >/dev/null
touch "$bundle/old"
CXX=false tools/gpu-bundle "$bundle" >/dev/null 2>&1 && fail "it does without a compiler"
[ -f "$bundle/old" ] && [ -x "$bundle/pkg-config" ] || fail "a failure removed the old bundle"
tools/gpu-bundle "$bundle/" >/dev/null || fail "it does not make its own bundle anew"
[ ! -e "$bundle/old" ] || fail "it keeps files of the old bundle"
[ "$(ls "$folder")" = "$(printf "a bundle's | & name\nbin")" ] || fail "it leaves other folders: $(ls "$folder")"
cat >"$folder/all.cpp" <<'TEXT'
#define FMT_HEADER_ONLY
#include <CLI/CLI.hpp>
#include <expat.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>
#include <sodium.h>

int main(int argc, char** argv) {
    CLI::App app("all");
    CLI11_PARSE(app, argc, argv);
    XML_Parser parser = XML_ParserCreate(nullptr);
    const bool read = XML_Parse(parser, "<a/>", 4, 1) == XML_STATUS_OK;
    XML_ParserFree(parser);
    fmt::print("{} {} {}\n", nlohmann::json::parse("[1]").size(), sodium_init() >= 0, read);
}
TEXT
flags=() libraries=()
for package in fmt libsodium expat CLI11 nlohmann_json; do
    "$bundle/pkg-config" --modversion "$package" | grep -q '^[0-9]' || fail "$package has no version"
    # Without -r, a backslash escapes, as in pkg-config's answers.
    read -a more < <("$bundle/pkg-config" --cflags "$package")
    flags+=("${more[@]}")
    read -a more < <("$bundle/pkg-config" --libs "$package") || true
    libraries+=("${more[@]}")
done
${CXX:-c++} -std=c++20 -MD -MF "$folder/read" "${flags[@]}" "$folder/all.cpp" -o "$folder/all" "${libraries[@]}"
for part in fmt/core.h CLI/CLI.hpp nlohmann/json.hpp sodium.h expat.h; do grep -qF "name/include/$part" "$folder/read" || fail "$part is not the bundle's"; done
[ "$("$folder/all")" = "1 true true" ] || fail "the program says something else"
ldd "$folder/all" | grep -E "sodium|expat|fmt" && fail "a library is not in the program"
"$bundle/pkg-config" --libs catch2-with-main | grep -q "Catch2WithMain" && [ -f "$bundle/include/catch2/catch.hpp" ] && [ -f "$bundle/lib/libCatch2WithMain.a" ] || fail "no Catch2"
"$bundle/pkg-config" --exists ucx 2>/dev/null && fail "a package that is not there"
exit 0
