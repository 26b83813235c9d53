// system_fuzz.cpp: any content of /sys and /proc makes a host, with a cpu at least, that is the same when written and
// read again. The bytes are a tree: a line "name text" is a file, "name -> name" a link.
//     build/tests/fuzz/system_fuzz -dict=tests/fuzz/system.dict corpus tests/fuzz/system
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/folder.hpp"
#include "tests/fuzz/graph_properties.hpp"
#include "topology/detect/discover.hpp"

namespace {

// None but those below the folder: no parts that are dots.
bool is_name(const std::string& name) {
    constexpr size_t bytes_most = 200;
    for (const char letter : name)
        if (letter < '!' || letter > '~') return false;
    return (name.rfind("sys/", 0) == 0 || name.rfind("proc/", 0) == 0) && name.size() < bytes_most &&
           ('/' + name).find("/.") == std::string::npos;
}

void make_tree(const std::filesystem::path& root, const std::string& text) {
    constexpr int lines_most = 200;
    std::istringstream lines(text);
    std::string line;
    for (int i = 0; i < lines_most && std::getline(lines, line); ++i) {
        const size_t space = line.find(' ');
        const std::string name = line.substr(0, space),
                          value = space == std::string::npos ? "" : line.substr(space + 1);
        std::error_code ignored;  // a file where a folder would be
        if (!is_name(name)) continue;
        std::filesystem::create_directories((root / name).parent_path(), ignored);
        if (value.rfind("-> ", 0) != 0)
            std::ofstream(root / name) << value << '\n';
        else if (is_name(value.substr(3)))
            std::filesystem::create_symlink(root / value.substr(3), root / name, ignored);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    const weft::internal::test::Folder folder;
    make_tree(folder.path, {reinterpret_cast<const char*>(data), bytes});
    weft::internal::topology::Sources sources;
    sources.sys = folder.path / "sys";
    sources.proc = folder.path / "proc";
    const auto found = weft::internal::topology::discover(sources);
    if (found.graph.of_kind(weft::internal::topology::NodeKind::cpu).empty()) std::abort();
    weft::internal::fuzz::check_graph(found.graph);
    return 0;
}
