// Checkpoints as a client uses them: saved by N ranks, loaded by M, with random boxes against whole arrays; items and
// exports.
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
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

TEST_CASE("a checkpoint is listed without a communicator") {
    std::mt19937 random(seed());
    const Folder folder;
    const std::string name = folder.path / "c";
    const auto wholes = wholes_of_all_types(random);
    Parts saved = cover(wholes, 2, random);
    on_keepers(2, [&](Keeper& keeper, int rank) {
        const std::string state(size_t(rank) * 100, char('a' + rank));
        keeper.check(keeper.save(name, saved[size_t(rank)],
                                 {item("step:1", "77", 2, false), item("random", state.data(), state.size(), true)}));
    });
    std::map<std::string, std::string> tensors, items, wanted;
    const auto add = [&](const weftTrainStored_t& stored) {
        const std::vector<size_t> shape(stored.shape, stored.shape + stored.dims);
        if (stored.isItem)
            items[fmt::format("{}/{}", stored.name, stored.rank)] = {static_cast<const char*>(stored.data),
                                                                     stored.bytes};
        else
            tensors[stored.name] = fmt::format("{} {} {}", int(stored.datatype), fmt::join(shape, ","), stored.bytes);
    };
    const auto call = [](const weftTrainStored_t* stored, void* context) {
        (*static_cast<decltype(add)*>(context))(*stored);
    };
    int ranks = 0;
    REQUIRE(weftTrainCheckpointList(name.c_str(), call, const_cast<void*>(static_cast<const void*>(&add)), &ranks) ==
            weftSuccess);
    CHECK(ranks == 2);
    for (const Whole& each : wholes)
        wanted[each.name] = fmt::format("{} {} {}", int(each.type), fmt::join(each.shape, ","), each.bytes.size());
    CHECK(tensors == wanted);
    CHECK(items == std::map<std::string, std::string>{
                       {"step:1/-1", "77"}, {"random/0", ""}, {"random/1", std::string(100, 'b')}});
    CHECK(weftTrainCheckpointList(name.c_str(), nullptr, nullptr, nullptr) == weftInvalidArgument);
    CHECK(weftTrainCheckpointList("", call, nullptr, nullptr) == weftInvalidArgument);
    CHECK(weftTrainCheckpointList(folder.path.c_str(), call, nullptr, nullptr) == weftInvalidUsage);
    std::filesystem::remove(name + "/rank-00001.safetensors");
    CHECK(weftTrainCheckpointList(name.c_str(), call, const_cast<void*>(static_cast<const void*>(&add)), nullptr) ==
          weftSystemError);
}

TEST_CASE("the data files and the export are safetensors files") {
    std::mt19937 random(seed());
    const Folder folder;
    const std::string name = folder.path / "c", file = folder.path / "model.safetensors";
    auto wholes = wholes_of_all_types(random);
    for (Whole& whole : wholes) whole.name = "model/" + whole.name;
    wholes.push_back(random_whole("optimizer/x", weftFloat32, {3}, random));
    // More than a slab of the export.
    Whole big{"model/big", weftUint8, {17, size_t(1) << 20}, std::vector<std::byte>(size_t(17) << 20)};
    for (size_t i = 0; i < big.bytes.size(); ++i) big.bytes[i] = std::byte(i >> 17);
    wholes.reserve(wholes.size() + 1);  // parts point to the others
    Parts saved = cover(wholes, 3, random);
    saved[2].emplace_back(big, Box{{0, 0}, big.shape});
    saved[2].back().data = big.bytes;
    wholes.push_back(big);
    on_keepers(3, [&](Keeper& keeper, int rank) {
        keeper.check(keeper.save(name, saved[size_t(rank)], {item("step", "x", 1, false)}));
        keeper.expect(weftTrainCheckpointExport(keeper.get(), name.c_str(), "Model", file.c_str()),
                      "train.checkpoint-model");
        keeper.check(weftTrainCheckpointExport(keeper.get(), name.c_str(), "model/", file.c_str()));
    });
    size_t files = 0;  // no draft
    for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(folder.path)) ++files;
    CHECK(files == 2);
    for (const std::string& path : {file, name + "/rank-00001.safetensors"}) {
        const std::string text = text_in(path);
        uint64_t length = 0;
        memcpy(&length, text.data(), sizeof length);
        REQUIRE(length % 8 == 0);
        auto header = nlohmann::json::parse(text.substr(8, length));
        CHECK(header.erase("__metadata__") == (path == file ? 0 : 1));
        std::vector<std::pair<size_t, size_t>> places;
        for (const auto& entry : header.items()) {
            const auto& value = entry.value();
            places.emplace_back(value["data_offsets"][0], value["data_offsets"][1]);
            if (path == file) {
                const auto whole = std::find_if(wholes.begin(), wholes.end(),
                                                [&](const Whole& each) { return each.name == "model/" + entry.key(); });
                REQUIRE(whole != wholes.end());
                CHECK(value["shape"].get<std::vector<size_t>>() == whole->shape);
                const std::string data =
                    text.substr(8 + length + places.back().first, places.back().second - places.back().first);
                CHECK(data.size() == whole->bytes.size());
                CHECK(std::equal(data.begin(), data.end(), whole->bytes.begin(),
                                 [](char left, auto right) { return left == char(right); }));
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

TEST_CASE("a sharded model and its optimizer go to other numbers of ranks and other shardings") {
    const Folder folder;
    const std::string name = folder.path / "c";
    std::vector<float> weight(35), bias(3), values(38);
    for (size_t i = 0; i < values.size(); ++i) (i < 35 ? weight[i] : bias[i - 35]) = values[i] = float(i + 1);
    weftTrainTensor_t tensors[2] = {WEFT_TRAIN_TENSOR_INITIALIZER, WEFT_TRAIN_TENSOR_INITIALIZER};
    tensors[0].name = "weight";
    tensors[0].data = weight.data();
    tensors[0].count = weight.size();
    const size_t shape[] = {7, 5};
    tensors[0].dims = 2;
    tensors[0].shape = shape;
    tensors[1].name = "bias";
    tensors[1].data = bias.data();
    tensors[1].count = bias.size();
    weftTrainUnit_t unit = WEFT_TRAIN_UNIT_INITIALIZER;
    unit.name = "layer";
    unit.parameters = tensors;
    unit.parameterCount = 2;
    weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
    // The boxes of the values and of a state whose elements are 100 larger.
    const auto boxes_of = [&](Keeper& keeper, weftTrainShard_t shard, std::vector<float>* states, size_t* begins) {
        std::vector<weftTrainBox_t> boxes;
        for (int p = 0; p < 2; ++p) {
            weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
            keeper.check(weftTrainShardGetBox(shard, p, &box));
            boxes.push_back(box);
            weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
            keeper.check(weftTrainShardGetPiece(shard, p, &piece));
            begins[p] = piece.begin;
            for (size_t i = 0; i < piece.count; ++i) states[p].push_back(static_cast<float*>(box.data)[i] + 100);
            box.name = p == 0 ? "state/weight" : "state/bias";
            box.data = states[p].data();
            boxes.push_back(box);
        }
        return boxes;
    };
    for (const bool saves : {true, false}) {
        config.sharding = saves ? weftTrainShardRows : weftTrainShardFlat;
        config.shardRanks = saves ? 2 : 0;
        if (!saves) std::fill(weight.begin(), weight.end(), 0.f);
        if (!saves) std::fill(bias.begin(), bias.end(), 0.f);
        const std::vector<std::string> all = on_threads(saves ? 4 : 3, nullptr, [&](weftComm_t comm, int) {
            Keeper keeper(comm);
            weftTrainShard_t shard = nullptr;
            keeper.check(weftTrainShardCreate(&shard, comm, &unit, 1, &config));
            std::vector<float> states[2];
            size_t begins[2] = {};
            const auto boxes = boxes_of(keeper, shard, states, begins);
            if (saves) {
                keeper.check(weftTrainCheckpointSave(keeper.get(), name.c_str(), boxes.data(), boxes.size(), nullptr, 0,
                                                     weftTrainSaveBackground));
                keeper.check(weftTrainCheckpointWait(keeper.get()));
            } else {
                keeper.check(weftTrainCheckpointLoad(keeper.get(), name.c_str(), boxes.data(), boxes.size()));
                keeper.check(weftTrainShardGather(shard, 0, nullptr));
                for (int p = 0; p < 2; ++p) {
                    void* whole = nullptr;
                    keeper.check(weftTrainShardGetParameter(shard, p, &whole));
                    if (memcmp(whole, values.data() + 35 * p, p == 0 ? 140 : 12) != 0) keeper.complain("other values");
                    const size_t begin = begins[p] + size_t(35 * p);
                    for (size_t i = 0; i < states[p].size(); ++i)
                        if (states[p][i] != values[begin + i] + 100) keeper.complain("another state");
                }
                keeper.check(weftTrainShardRelease(shard, 0, weftTrainBackward, nullptr));
            }
            weftTrainBox_t wrong = {};
            keeper.expect(weftTrainShardGetBox(shard, 0, &wrong), "argument.config");
            keeper.expect(weftTrainShardGetBox(shard, 2, &wrong), "argument.value");
            keeper.check(weftBarrier(comm, nullptr));
            keeper.check(weftTrainShardDestroy(shard));
            return keeper.wrong;
        });
        for (const std::string& wrong : all) CHECK(wrong == "");
    }
    // Boxes with dimensions load it, and so does a model from boxes; the export has the shape.
    std::mt19937 random(seed());
    Whole whole{"weight", weftFloat32, {7, 5}, std::vector<std::byte>(140)};
    memcpy(whole.bytes.data(), values.data(), 140);
    Parts loaded = any_boxes({whole}, 2, random);
    for (std::vector<Part>& own : loaded)
        for (Part& each : own) each.whole = &whole;
    on_keepers(2, [&](Keeper& keeper, int rank) {
        keeper.check(keeper.load(name, loaded[size_t(rank)]));
        keeper.check(weftTrainCheckpointExport(keeper.get(), name.c_str(), nullptr, (name + ".safetensors").c_str()));
        for (const Part& each : loaded[size_t(rank)])
            if (each.data != each.wanted()) keeper.complain("other values");
    });
    const std::string text = text_in(name + ".safetensors");
    CHECK(text.find(R"("state/weight":{"dtype":"F32","shape":[7,5])") != std::string::npos);
    CHECK(text.find(R"("bias":{"dtype":"F32","shape":[3])") != std::string::npos);
}

TEST_CASE("wrong shapes of parameters and ranges are refused") {
    std::vector<float> values(6);
    on_keepers(1, [&](Keeper& keeper, int) {
        const size_t shape[] = {2, 3};
        weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
        box.name = "x";
        box.data = values.data();
        box.dims = 2;
        box.shape = shape;
        box.isRange = 1;
        box.begin = 2;
        box.count = 5;
        const auto load = [&] { return weftTrainCheckpointLoad(keeper.get(), "/none", &box, 1); };
        keeper.expect(load(), "argument.value");
        box.begin = SIZE_MAX;
        keeper.expect(load(), "argument.value");
        box.begin = 0;
        box.offsets = shape;
        keeper.expect(load(), "argument.value");
        box.offsets = nullptr;
        box.isRange = 2;
        keeper.expect(load(), "argument.value");
    });
    for (const std::string& wrong : on_threads(1, nullptr, [&](weftComm_t comm, int) {
             Keeper keeper(comm);
             const size_t shape[] = {2, 3}, other[] = {2, 2}, large[] = {size_t(1) << 40, size_t(1) << 40};
             weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
             tensor.name = "x";
             tensor.data = values.data();
             tensor.count = 6;
             weftTrainUnit_t unit = WEFT_TRAIN_UNIT_INITIALIZER;
             unit.name = "layer";
             unit.parameters = &tensor;
             unit.parameterCount = 1;
             const auto expect = [&](const char* id, int dims, const size_t* given, size_t rows) {
                 tensor.dims = dims;
                 tensor.shape = given;
                 tensor.rows = rows;
                 weftTrainShard_t shard = nullptr;
                 keeper.expect(weftTrainShardCreate(&shard, comm, &unit, 1, nullptr), id);
                 keeper.check(weftTrainShardDestroy(shard));
             };
             expect("none", 2, shape, 0);
             expect("none", 2, shape, 2);
             expect("argument.value", 2, shape, 3);
             expect("argument.value", 2, other, 0);
             expect("argument.value", 2, large, 0);
             expect("argument.value", 9, shape, 0);
             expect("argument.value", 0, nullptr, 0);
             expect("argument.null", 2, nullptr, 0);
             return keeper.wrong;
         }))
        CHECK(wrong == "");
}
