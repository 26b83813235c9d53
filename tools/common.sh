# common.sh: shared by quickstart and test: packages from packages.txt, and stages with their times.
# Sourced, not run. shellcheck shell=bash

stages=()  # "seconds name", for the summary

# stage NAME COMMAND...: runs the command and prints its time; returns its status.
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

# as_root COMMAND...
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        echo "This needs root or sudo: $*" >&2
        return 1
    fi
}

# add_architecture NAME: lets apt install packages of another architecture.
add_architecture() {
    dpkg --print-foreign-architectures | grep -qx "$1" || as_root dpkg --add-architecture "$1"
}

# install_packages PURPOSE...: installs the missing packages of packages.txt for these purposes.
install_packages() {
    local purpose missing=() package
    if ! command -v apt-get >/dev/null; then
        echo "No apt-get here, so nothing is installed: see tools/packages.txt for what is needed."
        return
    fi
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
    as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
}

# gpus_here: the compute capabilities of this machine's GPUs in the format of gpu_targets (80,90), or nothing.
gpus_here() {
    nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d '. ' | grep -xE '[0-9]+' | sort -un | paste -sd, || true
}

# has_compiler TOOLKIT: whether the toolkit has an nvcc that is new enough for Weft (meson.build).
has_compiler() {
    local release
    release=$("$1/bin/nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p') || return 1
    [ -n "$release" ] && printf '12.4\n%s\n' "$release" | sort -V -C
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
