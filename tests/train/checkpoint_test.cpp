// Checkpoints as a client uses them: saved by N ranks, loaded by M, with random boxes against whole arrays; items and
// exports.
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/amount.hpp"
#include "tests/folder.hpp"
#include "tests/train/checkpoint_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

std::string text_in(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace

TEST_CASE("any number of ranks loads what any number saved") {
    std::mt19937 random(seed());
    const int most = small() ? 3 : 4, rounds = small() ? 1 : 4;
    for (int savers = 1; savers <= most; ++savers)
        for (int round = 0; round < rounds; ++round) {
            const Folder folder;
            const std::string name = folder.path / "step" / "10";
            const auto wholes = wholes_of_all_types(random);
            Parts saved = cover(wholes, size_t(savers), random);
            const bool background = random() % 2 == 0;
            on_keepers(savers, [&](Keeper& keeper, int rank) {
                keeper.check(keeper.save(name, saved[size_t(rank)], {},
                                         background ? weftTrainSaveBackground : weftTrainSaveBlocking));
                // The copies count.
                for (Part& each : saved[size_t(rank)]) std::fill(each.data.begin(), each.data.end(), std::byte(0));
                keeper.check(weftTrainCheckpointWait(keeper.get()));
            });
            for (int loaders = 1; loaders <= most; ++loaders) {
                Parts loaded = any_boxes(wholes, size_t(loaders), random);
                on_keepers(loaders, [&](Keeper& keeper, int rank) {
                    keeper.check(keeper.load(name, loaded[size_t(rank)]));
                    int ranks = 0;
                    keeper.check(weftTrainCheckpointGetRanks(keeper.get(), &ranks));
                    if (ranks != savers) keeper.complain("another number of ranks");
                });
                for (const std::vector<Part>& own : loaded)
                    for (const Part& each : own) CHECK(each.data == each.wanted());
            }
        }
}

TEST_CASE("items come back, each rank's and the common ones") {
    const Folder folder;
    const std::string name = folder.path / "c";
    on_keepers(3, [&](Keeper& keeper, int rank) {
        std::vector<Part> none;
        const uint64_t step = 77;
        const std::string state(size_t(rank) * 100, char('a' + rank));
        keeper.check(keeper.save(
            name, none, {item("step", &step, sizeof step, false), item("random", state.data(), state.size(), true)}));
    });
    on_keepers(2, [&](Keeper& keeper, int) {
        size_t bytes = 0;
        keeper.expect(weftTrainCheckpointGetItem(keeper.get(), "step", -1, nullptr, 0, &bytes),
                      "train.checkpoint-model");
        std::vector<Part> none;
        keeper.check(keeper.load(name, none));
        uint64_t step = 0;
        keeper.check(weftTrainCheckpointGetItem(keeper.get(), "step", -1, &step, sizeof step, &bytes));
        if (step != 77 || bytes != sizeof step) keeper.complain("another step");
        for (int rank = 0; rank < 3; ++rank) {
            std::string state(300, '?');
            keeper.check(weftTrainCheckpointGetItem(keeper.get(), "random", rank, state.data(), state.size(), &bytes));
            state.resize(bytes);
            if (state != std::string(size_t(rank) * 100, char('a' + rank))) keeper.complain("another state");
        }
        keeper.expect(weftTrainCheckpointGetItem(keeper.get(), "random", 2, &step, sizeof step, &bytes),
                      "argument.value");
        if (bytes != 200) keeper.complain("the bytes of a state");
        keeper.expect(weftTrainCheckpointGetItem(keeper.get(), "random", 3, nullptr, 0, &bytes),
                      "train.checkpoint-model");
        keeper.expect(weftTrainCheckpointGetItem(keeper.get(), "step", 0, nullptr, 0, &bytes),
                      "train.checkpoint-model");
    });
}

TEST_CASE("the data files and the export are safetensors files") {
    std::mt19937 random(seed());
    const Folder folder;
    const std::string name = folder.path / "c", file = folder.path / "model.safetensors";
    auto wholes = wholes_of_all_types(random);
    for (Whole& whole : wholes) whole.name = "model/" + whole.name;
    wholes.push_back(random_whole("optimizer/x", weftFloat32, {3}, random));
    Parts saved = cover(wholes, 3, random);
    on_keepers(3, [&](Keeper& keeper, int rank) {
        keeper.check(keeper.save(name, saved[size_t(rank)], {item("step", "x", 1, false)}));
        keeper.expect(weftTrainCheckpointExport(keeper.get(), name.c_str(), "Model", file.c_str()),
                      "train.checkpoint-model");
        keeper.check(weftTrainCheckpointExport(keeper.get(), name.c_str(), "model/", file.c_str()));
    });
    CHECK_FALSE(exists(file + ".partial"));
    for (const std::string& path : {file, name + "/rank-00001.safetensors"}) {
        const std::string text = text_in(path);
        uint64_t length = 0;
        memcpy(&length, text.data(), sizeof length);
        REQUIRE(length % 8 == 0);
        const auto header = nlohmann::json::parse(text.substr(8, length));
        std::vector<std::pair<size_t, size_t>> places;
        for (const auto& [key, value] : header.items()) {
            places.emplace_back(value["data_offsets"][0], value["data_offsets"][1]);
            if (path == file) {
                const auto whole = std::find_if(wholes.begin(), wholes.end(),
                                                [&](const Whole& each) { return each.name == "model/" + key; });
                REQUIRE(whole != wholes.end());
                CHECK(value["shape"].get<std::vector<size_t>>() == whole->shape);
                const std::string data =
                    text.substr(8 + length + places.back().first, places.back().second - places.back().first);
                CHECK(data.size() == whole->bytes.size());
                CHECK(memcmp(data.data(), whole->bytes.data(), data.size()) == 0);
            }
        }
        if (path == file) CHECK(header.size() == wholes.size() - 1);
        // Without gaps to the end of the file.
        std::sort(places.begin(), places.end());
        size_t end = 0;
        for (const auto& [begin, next] : places) {
            CHECK(begin == end);
            end = next;
        }
        CHECK(8 + length + end == text.size());
    }
}
