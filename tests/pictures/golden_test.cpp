// The pictures of docs/pictures are those that the command draws: a change of one is looked at and committed.
#include "src/base/file.hpp"
#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

static std::string picture_text(const std::string& name) {
    auto text = read_file(name, 1 << 20);
    REQUIRE(text.ok());
    return *text;
}

struct Golden {
    const char* file;
    std::vector<std::string> words;  // of the command, run at the top of the tree
};

static const Golden goldens[] = {
    {"dgx1_v100.svg", {"topology", "search", "tests/topology/machines/dgx1_v100.xml"}},
    {"dgx_h100_hosts_8.svg", {"topology", "search", "tests/topology/machines/dgx_h100.xml", "--hosts", "8"}},
    {"gb200_nvl72_slice.svg", {"topology", "show", "tests/topology/machines/gb200_nvl72_slice.xml"}},
    {"cpu_two_sockets.svg", {"topology", "show", "tests/topology/machines/cpu_two_sockets.xml"}},
    {"ring_4.svg", {"schedule", "show", "ring", "--ranks", "4"}},
    {"all_pairs_4.svg", {"schedule", "show", "all_pairs", "--ranks", "4"}},
    {"two_level_ring_8_hosts_2.svg", {"schedule", "show", "two_level_ring", "--ranks", "8", "--hosts", "2"}},
};

TEST_CASE("the pictures of docs/pictures are those that the command draws", "[pictures]") {
    const std::string top = std::string(WEFT_TOP) + "/";
    const Folder made;
    for (const Golden& golden : goldens) {
        std::vector<std::string> words{WEFT_COMMAND};
        std::string said = "weft";
        for (const std::string& word : golden.words) {
            words.push_back(word.ends_with(".xml") ? top + word : word);
            said += " " + word;
        }
        const std::string file = made.path / golden.file;
        words.insert(words.end(), {"--svg", file});
        REQUIRE(run(words).status == 0);
        INFO("docs/pictures/" << golden.file << " differs; where that is wanted: " << said << " --svg docs/pictures/"
                              << golden.file << ", and look at it");
        const bool same = picture_text(file) == picture_text(top + "docs/pictures/" + golden.file);
        CHECK(same);
        CHECK(std::filesystem::file_size(file) < 60'000);
    }
}
