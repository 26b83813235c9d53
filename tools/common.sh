# common.sh: what quickstart and test share: packages from packages.txt, and stages that show how long they took.
# Sourced, not run. shellcheck shell=bash

stages=()  # "seconds name", for the summary

# stage NAME COMMAND...: runs it and says how long it took; returns its status.
stage() {
    local name=$1 begin=$SECONDS status=0
    shift
    printf '\n==> %s\n' "$name"
    "$@" || status=$?
    stages+=("$((SECONDS - begin)) $name$([ "$status" = 0 ] || echo ': failed')")
    printf '<== %s: %d s%s\n' "$name" "$((SECONDS - begin))" "$([ "$status" = 0 ] || echo ', failed')"
    return "$status"
}

print_stages() {
    local each
    printf '\nstage times, seconds:\n'
    for each in "${stages[@]}"; do printf '%6s  %s\n' "${each%% *}" "${each#* }"; done
    printf '%6s  in all\n' "$SECONDS"
}

# install_packages PURPOSE...: the packages of packages.txt for these purposes, those that are missing.
install_packages() {
    local purpose missing=() package sudo=()
    for purpose; do
        while read -r package; do
            dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
        done < <(awk -v purpose="$purpose" '!/^#/ && $2 == purpose { print $1 }' "$top/tools/packages.txt")
    done
    if [ "${#missing[@]}" = 0 ]; then
        echo "all packages are installed"
        return
    fi
    echo "missing: ${missing[*]}"
    if ! command -v apt-get >/dev/null; then
        echo "This script installs packages on Debian and its kin. Install what corresponds to: ${missing[*]}" >&2
        return 1
    fi
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "Run this as root, or install sudo, or install: ${missing[*]}" >&2; return 1; }
        sudo=(sudo)
    fi
    "${sudo[@]}" apt-get update -qq &&
        "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# configure FOLDER OPTIONS...: a build folder with these options, new or existing.
configure() {
    local folder=$1
    shift
    if [ -f "$folder/build.ninja" ]; then
        meson setup --reconfigure "$folder" "$@" >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log"; return 1; }
    else
        mkdir -p "$folder"
        meson setup "$folder" "$@" >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log"; return 1; }
    fi
}
