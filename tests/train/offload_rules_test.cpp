// Where offloaded states lie in a file, passes over them, and files that have become shorter.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "src/train/offload/offloaded_states.hpp"
#include "src/train/optimizer/parts.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;
using namespace weft::internal::train;

namespace {

std::string here() { return std::filesystem::temp_directory_path().string(); }

std::unique_ptr<OffloadedStates> states_of(const std::vector<size_t>& counts, OffloadRule::Engine engine) {
    auto made = OffloadedStates::make({here(), false, 1024, 3, engine}, counts, 2);
    REQUIRE(made.ok());
    return std::move(*made);
}

}  // namespace

TEST_CASE("pieces cover all parts in their order, without overlap, and begin at blocks") {
    std::mt19937 random(1);
    for (int turn = 0; turn < 200; ++turn) {
        std::vector<size_t> counts(random() % 10);
        for (size_t& count : counts) count = random() % 3 ? random() % 5000 : random() % 40;
        const OffloadLayout layout(counts, random() % 4000);
        CHECK(layout.chunk_elements() % block_elements == 0);
        std::vector<size_t> covered(counts.size(), 0);
        for (size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
            size_t used = 0;
            CHECK(!layout.chunk(chunk).empty());
            for (const ChunkPiece& piece : layout.chunk(chunk)) {
                CHECK((piece.place >= used && piece.place % 16 == 0 && piece.first % block_elements == 0));
                CHECK(piece.first == covered[piece.part]);
                covered[piece.part] += piece.count;
                used = piece.place + piece.count;
            }
            CHECK(used <= layout.chunk_elements());
        }
        CHECK(covered == counts);
    }
}

TEST_CASE("passes keep what they wrote, and leave out parts that are not used") {
    for (const auto engine : {OffloadRule::Engine::any, OffloadRule::Engine::threads}) {
        const auto states = states_of({3000, 5, 2000}, engine);
        const auto add = [&](const std::vector<bool>& used) {
            CHECK(states->pass(used, true, [](std::span<const LoadedPiece> pieces) {
                for (const LoadedPiece& piece : pieces)
                    for (size_t i = 0; i < piece.count; ++i) {
                        piece.arrays[0][i] += 1;
                        piece.arrays[1][i] += float(piece.part) + float(piece.first + i);
                    }
                return ok();
            }));
        };
        add({true, true, true});
        add({true, false, true});
        add({false, true, true});
        size_t elements = 0;
        CHECK(states->pass({true, true, true}, false, [&](std::span<const LoadedPiece> pieces) {
            for (const LoadedPiece& piece : pieces)
                for (size_t i = 0; i < piece.count; ++i, ++elements) {
                    const float times = piece.part == 2 ? 3 : 2;
                    if (piece.arrays[0][i] != times ||
                        piece.arrays[1][i] != times * (float(piece.part) + float(piece.first + i)))
                        return fail(error::internal_state, "element {} of part {}", piece.first + i, piece.part);
                }
            return ok();
        }));
        CHECK(elements == 5005);
    }
}

TEST_CASE("a file that has become shorter is an error, and so is an error of the body; a pass may be repeated") {
    for (const auto engine : {OffloadRule::Engine::any, OffloadRule::Engine::threads}) {
        const auto states = states_of({3000, 5000}, engine);
        const auto nothing = [](std::span<const LoadedPiece>) { return ok(); };
        int calls = 0;
        CHECK(states
                  ->pass({true, true}, true,
                         [&](std::span<const LoadedPiece>) {
                             return ++calls == 3 ? fail(error::internal_state, "third") : ok();
                         })
                  .id() == error::internal_state);
        CHECK(states->pass({true, true}, true, nothing).ok());
        REQUIRE(ftruncate(states->file().number(), 5 * 8192 + 4096) == 0);
        CHECK(states->pass({true, true}, false, nothing).id() == error::train_offload);
        CHECK(states->pass({true, false}, false, nothing).ok());
    }
}
