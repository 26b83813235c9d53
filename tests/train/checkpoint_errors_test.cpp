// Checkpoints that cannot be saved or loaded: full disks, other models, damaged files, wrong arguments.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "tests/folder.hpp"
#include "tests/patience.hpp"
#include "tests/train/checkpoint_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

TEST_CASE("a full disk on one rank is an error on all, without metadata, and the old checkpoint stays") {
    const Folder folder;
    const std::string old = folder.path / "old", full = folder.path / "full";
    const SmallModel model;
    std::filesystem::create_directory(full);
    std::filesystem::create_symlink("/dev/full", full + "/rank-00001.safetensors");
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        keeper.check(keeper.save(old, parts));
        keeper.expect(keeper.save(full, parts), "file.unwritable", rank == 0 ? 1 : -1);
        // The object lives on.
        keeper.check(keeper.save(folder.path / "next", parts, {}, weftTrainSaveBackground));
        keeper.check(weftTrainCheckpointWait(keeper.get()));
        auto loaded = model.parts(1 - rank, false);
        for (const std::string& each : {old, (folder.path / "next").string()}) {
            keeper.check(keeper.load(each, loaded));
            for (const Part& part : loaded)
                if (part.data != part.wanted()) keeper.complain("other values");
        }
        keeper.expect(keeper.load(full, loaded), "train.checkpoint-incomplete", rank == 1 ? 0 : -1);
    });
    CHECK_FALSE(exists(full + "/checkpoint.json"));
    CHECK_FALSE(exists(full + "/rank-00000.safetensors"));
}

TEST_CASE("if the metadata cannot be written, no data stays") {
    const Folder folder;
    const SmallModel model;
    // So long that the names of data files are possible, and that of the metadata's draft is not.
    constexpr size_t path_bytes_most = 4095;
    const size_t wanted = path_bytes_most - std::string("/checkpoint.json.0123456789abcdef.partial").size() + 1;
    std::string name = folder.path;
    while (name.size() < wanted) {
        const size_t missing = wanted - name.size();
        name += '/' + std::string(missing > 252 ? 200 : missing - 1, 'x');
    }
    std::filesystem::create_directories(name);
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        keeper.expect(keeper.save(name, parts), "file.unwritable", rank == 1 ? 0 : -1);
        keeper.check(keeper.save(folder.path / "next", parts));
    });
    CHECK(std::filesystem::is_empty(name));
}

TEST_CASE("files of two saves are told apart") {
    const Folder folder;
    const SmallModel model;
    const auto name = [&](const char* each) { return (folder.path / each).string(); };
    const std::string file = "/rank-00001.safetensors";
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        for (const char* each : {"old", "new"}) keeper.check(keeper.save(name(each), parts));
    });
    // An interrupted save left a file of the same length in the folder of rank 0; rank 1 writes elsewhere.
    for (const char* each : {"left", "other"}) std::filesystem::create_directory(name(each));
    std::filesystem::copy_file(name("old") + file, name("left") + file);
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        keeper.expect(keeper.save(name(rank == 0 ? "left" : "other"), parts), "file.unreadable", rank == 1 ? 0 : -1);
    });
    CHECK_FALSE(exists(name("left") + "/checkpoint.json"));
    CHECK_FALSE(exists(name("left") + "/rank-00000.safetensors"));
    CHECK_FALSE(exists(name("other") + file));
    CHECK(exists(name("left") + file));  // it may be another job's
    // Loads: the ranks name different folders, and files are mixed.
    std::filesystem::copy(name("new"), name("mixed"));
    std::filesystem::copy_file(name("old") + file, name("mixed") + file,
                               std::filesystem::copy_options::overwrite_existing);
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto loaded = model.parts(1 - rank, false);
        keeper.check(keeper.load(name("new"), loaded));
        keeper.expect(keeper.load(name(rank == 0 ? "new" : "old"), loaded), "train.checkpoint-damaged",
                      rank == 0 ? 1 : -1);
        std::vector<Part> none;
        keeper.expect(keeper.load(name("mixed"), none), "train.checkpoint-damaged", rank == 0 ? 1 : -1);
        const std::string sentence = weftGetLastError(nullptr);
        if (sentence.find(name("mixed") + file) == std::string::npos) keeper.complain(sentence);
    });
}

TEST_CASE("ranks may save in different modes") {
    const Folder folder;
    const SmallModel model;
    on_keepers(3, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        keeper.check(
            keeper.save(folder.path / "c", parts, {}, rank == 1 ? weftTrainSaveBackground : weftTrainSaveBlocking));
        keeper.check(weftTrainCheckpointWait(keeper.get()));
        keeper.check(keeper.load(folder.path / "c", parts));
    });
}

TEST_CASE("items are those of the last load, not of an export or a failed load") {
    const Folder folder;
    const SmallModel model;
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        for (const char* name : {"1", "2"})
            keeper.check(keeper.save(folder.path / name, parts, {item("step", name, 1, false)}));
        keeper.check(keeper.load(folder.path / "2", parts));
        const auto expect_second = [&] {
            char step = 0;
            size_t bytes = 0;
            keeper.check(weftTrainCheckpointGetItem(keeper.get(), "step", -1, &step, 1, &bytes));
            if (step != '2') keeper.complain(std::string("the step is ") + step);
        };
        keeper.check(weftTrainCheckpointExport(keeper.get(), (folder.path / "1").c_str(), nullptr,
                                               (folder.path / "model.safetensors").c_str()));
        expect_second();
        Whole other = model.bias;
        other.name = "other";
        std::vector<Part> wanted;
        wanted.emplace_back(other, Box{{0}, {7}});
        keeper.expect(keeper.load(folder.path / "1", wanted), "train.checkpoint-model");
        expect_second();
    });
}

TEST_CASE("a failed save in the background is returned once, by the next call") {
    const Folder folder;
    const SmallModel model;
    for (const char* name : {"a", "b"}) {
        std::filesystem::create_directory(folder.path / name);
        std::filesystem::create_symlink("/dev/full", folder.path / name / "rank-00000.safetensors");
    }
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        int done = 0;
        keeper.check(weftTrainCheckpointTest(keeper.get(), &done));
        if (done != 1) keeper.complain("a save is in progress before the first one");
        keeper.check(keeper.save(folder.path / "a", parts, {}, weftTrainSaveBackground));
        if (!eventually([&] { return weftTrainCheckpointTest(keeper.get(), &done) != weftSuccess || done == 1; }))
            keeper.complain("the save does not end");
        keeper.expect(weftTrainCheckpointWait(keeper.get()), "file.unwritable");
        keeper.check(weftTrainCheckpointWait(keeper.get()));
        keeper.check(keeper.save(folder.path / "b", parts, {}, weftTrainSaveBackground));
        keeper.expect(keeper.save(folder.path / "c", parts), "file.unwritable");
        keeper.check(keeper.save(folder.path / "c", parts));
    });
    CHECK(exists(folder.path / "c" / "checkpoint.json"));
}

TEST_CASE("a folder with a complete checkpoint is not overwritten, one without is") {
    const Folder folder;
    const std::string name = folder.path / "c";
    const SmallModel model;
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        keeper.check(keeper.save(name, parts));
        keeper.expect(keeper.save(name, parts), "train.checkpoint-exists", rank == 1 ? 0 : -1);
        keeper.check(keeper.load(name, parts));
    });
    // An interrupted save of more ranks, and a file where a folder should be.
    std::filesystem::remove(name + "/checkpoint.json");
    std::ofstream(folder.path / "file") << "x";
    on_keepers(1, [&](Keeper& keeper, int) {
        std::vector<Part> parts;
        parts.emplace_back(model.bias, Box{{0}, {7}});
        keeper.check(keeper.save(name, parts));
        keeper.expect(keeper.save(folder.path / "file" / "c", parts), "file.unwritable");
        keeper.expect(keeper.save(folder.path / "file", parts), "file.unwritable");
        keeper.expect(keeper.load(folder.path / "absent", parts), "file.unreadable");
    });
}

TEST_CASE("a folder that another save writes to is refused on all ranks, unless its owner has ended") {
    const Folder folder;
    const SmallModel model;
    const std::string name = folder.path / "shared", lock = name + "/checkpoint.lock";
    std::filesystem::create_directory(name);
    char host[256] = {};
    REQUIRE(gethostname(host, sizeof host - 1) == 0);
    // Another descriptor of the file, as another save has it.
    const int other = open(lock.c_str(), O_RDWR | O_CREAT, 0666);
    REQUIRE(flock(other, LOCK_EX | LOCK_NB) == 0);
    std::ofstream(lock) << host << '\n' << getpid() << '\n';
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        for (const weftTrainSave_t mode : {weftTrainSaveBlocking, weftTrainSaveBackground})
            keeper.expect(keeper.save(name, parts, {}, mode), "train.checkpoint-busy", rank == 1 ? 0 : -1);
    });
    CHECK_FALSE(exists(name + "/rank-00000.safetensors"));
    // A process that has ended; its child may still hold the descriptor.
    const pid_t ended = fork();
    if (ended == 0) _exit(0);
    REQUIRE(waitpid(ended, nullptr, 0) == ended);
    // Its number stands for it only in its own boot and PID namespace: a container may have the same host name.
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    struct stat processes {};
    REQUIRE(stat("/proc/self/ns/pid", &processes) == 0);
    const std::string own = boot + ' ' + std::to_string(processes.st_ino);
    for (const std::string& elsewhere : {std::string(), own + "1", "1" + own}) {
        std::ofstream(lock) << host << '\n' << ended << '\n' << elsewhere << '\n';
        on_keepers(1, [&](Keeper& keeper, int) {
            auto parts = model.parts(0);
            keeper.expect(keeper.save(name, parts), "train.checkpoint-busy");
        });
        CHECK(exists(lock));
    }
    std::ofstream(lock) << host << '\n' << ended << '\n' << own << '\n';
    // Another save passes it over at this moment.
    const int passing = open(name.c_str(), O_RDONLY | O_DIRECTORY);
    REQUIRE(flock(passing, LOCK_EX | LOCK_NB) == 0);
    on_keepers(1, [&](Keeper& keeper, int) {
        auto parts = model.parts(0);
        keeper.expect(keeper.save(name, parts), "train.checkpoint-busy");
    });
    CHECK(exists(lock));
    close(passing);
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        keeper.check(keeper.save(name, parts, {}, weftTrainSaveBackground));
        keeper.check(weftTrainCheckpointWait(keeper.get()));
    });
    CHECK(exists(name + "/checkpoint.json"));
    CHECK_FALSE(exists(lock));
    // A file that is left without a lock.
    const std::string next = folder.path / "next";
    std::filesystem::create_directory(next);
    std::ofstream(next + "/checkpoint.lock") << "elsewhere\n1\n";
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        keeper.check(keeper.save(next, parts));
    });
    CHECK_FALSE(exists(next + "/checkpoint.lock"));
    close(other);
}

TEST_CASE("a checkpoint of another model changes nothing") {
    const Folder folder;
    const std::string name = folder.path / "c";
    const SmallModel model;
    on_keepers(2, [&](Keeper& keeper, int rank) {
        auto parts = model.parts(rank);
        keeper.check(keeper.save(name, parts));
        Whole other = model.bias;
        other.shape = {8};
        for (const bool renamed : {false, true}) {
            if (renamed) other.name = "Bias";
            auto wanted = model.parts(rank, false);
            if (rank == 1) wanted.emplace_back(other, Box{{0}, {7}});
            keeper.expect(keeper.load(name, wanted), "train.checkpoint-model", rank == 0 ? 1 : -1);
            for (const Part& part : wanted)
                if (std::any_of(part.data.begin(), part.data.end(),
                                [](std::byte each) { return each != std::byte(0); }))
                    keeper.complain("values were changed");
        }
    });
}

TEST_CASE("a damaged checkpoint is an error on all ranks") {
    const SmallModel model;
    const auto damaged = [&](const char* id, auto&& damage) {
        const Folder folder;
        const std::string name = folder.path / "c";
        on_keepers(2, [&](Keeper& keeper, int rank) {
            auto parts = model.parts(rank);
            keeper.check(keeper.save(name, parts));
        });
        damage(name);
        on_keepers(3, [&](Keeper& keeper, int rank) {
            auto parts = model.parts(0, false);
            parts.resize(rank == 2 ? 0 : 2, parts[0]);  // it reads nothing, but fails as well
            keeper.expect(keeper.load(name, parts), id);
        });
    };
    damaged("none", [](const std::string&) {});
    for (const long bytes : {-1L, 1L})
        damaged("train.checkpoint-damaged", [&](const std::string& name) {
            const std::string file = name + "/rank-00000.safetensors";
            std::filesystem::resize_file(file, uintmax_t(long(std::filesystem::file_size(file)) + bytes));
        });
    damaged("train.checkpoint-damaged", [](const std::string& name) {
        std::fstream file(name + "/rank-00000.safetensors", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-1, std::ios::end);
        const int last = file.peek();
        file.put(char(last ^ 1));
    });
    damaged("train.checkpoint-damaged",
            [](const std::string& name) { std::filesystem::resize_file(name + "/checkpoint.json", 100); });
    damaged("train.checkpoint-incomplete",
            [](const std::string& name) { std::filesystem::remove(name + "/checkpoint.json"); });
    damaged("file.unreadable",
            [](const std::string& name) { std::filesystem::remove(name + "/rank-00000.safetensors"); });
}

TEST_CASE("wrong arguments of one rank are an error on all") {
    const Folder folder;
    const SmallModel model;
    int number = 0;
    const auto refused = [&](const char* id, auto&& change) {
        const std::string name = folder.path / std::to_string(number++);
        on_keepers(2, [&](Keeper& keeper, int rank) {
            auto parts = model.parts(rank);
            std::vector<weftTrainBox_t> boxes;
            for (Part& each : parts) boxes.push_back(each.described());
            if (rank == 1) change(boxes);
            keeper.expect(weftTrainCheckpointSave(keeper.get(), name.c_str(), boxes.data(), boxes.size(), nullptr, 0,
                                                  weftTrainSaveBlocking),
                          id, rank == 0 && std::string(id).starts_with("argument") ? 1 : -1);
        });
        if (std::string(id) != "none") CHECK_FALSE(exists(name + "/checkpoint.json"));
    };
    using Boxes = std::vector<weftTrainBox_t>;
    static const size_t moved[] = {1, 0}, large[] = {size_t(1) << 40, size_t(1) << 40};
    refused("none", [](Boxes&) {});
    refused("argument.config", [](Boxes& boxes) { boxes[1].size = 8; });
    refused("argument.config", [](Boxes& boxes) { boxes[0].size = boxes[1].size = size_t(1) << 40; });
    refused("argument.null", [](Boxes& boxes) { boxes[1].name = ""; });
    refused("argument.value", [](Boxes& boxes) { boxes[1].name = "\xc3"; });
    refused("argument.value", [](Boxes& boxes) { boxes[1].name = "item:x"; });
    refused("argument.datatype", [](Boxes& boxes) { boxes[1].datatype = weftDataType_t(99); });
    refused("argument.value", [](Boxes& boxes) { boxes[1].dims = 9; });
    refused("argument.null", [](Boxes& boxes) { boxes[1].shape = nullptr; });
    refused("argument.null", [](Boxes& boxes) { boxes[1].data = nullptr; });
    refused("argument.value", [](Boxes& boxes) { boxes[0].extents = nullptr; });
    refused("argument.count", [](Boxes& boxes) { boxes[0].shape = large; });
    refused("train.checkpoint-boxes", [](Boxes& boxes) { boxes[0].offsets = moved; });
    refused("train.checkpoint-boxes", [](Boxes& boxes) { boxes[1].datatype = weftInt64; });
    refused("train.checkpoint-boxes", [](Boxes& boxes) { boxes.erase(boxes.begin()); });
    on_keepers(2, [&](Keeper& keeper, int rank) {
        const std::string name = folder.path / "items";
        std::vector<Part> none;
        keeper.expect(keeper.save(name, none, {item(rank == 0 ? "" : "x", "x", 1, false)}), "argument.null");
        keeper.expect(keeper.save(name, none, {item("x", rank == 0 ? nullptr : "x", 1, false)}), "argument.null");
        keeper.expect(keeper.save(name, none, {item("x", "x", 1, true), item("x", "x", 1, true)}), "argument.value");
        keeper.expect(keeper.save(name, none, {item("x", "xy", size_t(1 + rank), false)}), "train.checkpoint-boxes");
        keeper.expect(keeper.save(rank == 0 ? "" : name, none), "argument.null");
        keeper.expect(keeper.save(name, none, {}, weftTrainSave_t(2)), "argument.value");
        keeper.expect(weftTrainCheckpointExport(keeper.get(), name.c_str(), nullptr, nullptr), "argument.null");
    });
}

TEST_CASE("a wrong object is refused, and an aborted one ends") {
    weftTrainCheckpoint_t checkpoint = nullptr;
    CHECK(weftTrainCheckpointDestroy(nullptr) == weftSuccess);
    CHECK(weftTrainCheckpointWait(nullptr) == weftInvalidArgument);
    CHECK(weftTrainCheckpointCreate(nullptr, nullptr) == weftInvalidArgument);
    CHECK(weftTrainCheckpointCreate(&checkpoint, nullptr) == weftInvalidArgument);
    const Folder folder;
    for (const std::string& wrong : on_threads(2, nullptr, [&](weftComm_t comm, int rank) {
             Keeper keeper(comm);
             std::vector<Part> none;
             keeper.check(weftBarrier(comm, nullptr));
             if (rank == 1) {
                 keeper.check(weftTrainCheckpointAbort(keeper.get()));
                 keeper.expect(keeper.save(folder.path / "c", none), "train.aborted");
             } else {
                 keeper.expect(keeper.save(folder.path / "c", none), "abort.remote");
             }
             weftTrainCheckpoint_t other = nullptr;
             keeper.check(weftBarrier(comm, nullptr));
             keeper.check(weftTrainCheckpointCreate(&other, comm));
             keeper.check(weftTrainCheckpointDestroy(other));
             keeper.expect(weftTrainCheckpointDestroy(other), "argument.handle");
             keeper.check(weftBarrier(comm, nullptr));
             return keeper.wrong;
         }))
        CHECK(wrong == "");
}
