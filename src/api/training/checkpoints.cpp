// checkpoints.cpp: the checkpoints of train.h: checks handles and arguments, and calls src/train.
#include <cstddef>
#include <string>
#include <vector>

#include "src/api/training/boxes.hpp"
#include "src/api/training/handle.hpp"
#include "src/train/checkpoint/checkpoint.hpp"
#include "src/train/checkpoint/verdict.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainCheckpoint : TrainingHandle<weftTrainCheckpoint, train::Checkpoint> {
    static constexpr uint64_t living = 0x7466657774636b70u, destroyed = 0x7466657774636b65u;
    static constexpr const char* name = "checkpoint";
    static constexpr const char* maker = "weftTrainCheckpointCreate";
};

extern "C" {

weftResult_t weftTrainCheckpointCreate(weftTrainCheckpoint_t* checkpoint, weftComm_t comm) {
    return guarded([&]() -> Status {
        if (!checkpoint)
            return fail(error::argument_null,
                        "weftTrainCheckpointCreate: checkpoint is NULL: pass the address of a weftTrainCheckpoint_t");
        *checkpoint = nullptr;
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group("weftTrainCheckpointCreate"));
        auto made = train::Checkpoint::make(comm);
        if (!made) return made.take_status();
        *checkpoint = keep_training<weftTrainCheckpoint>(std::move(*made));
        return ok();
    });
}

weftResult_t weftTrainCheckpointDestroy(weftTrainCheckpoint_t checkpoint) {
    return destroy_training("weftTrainCheckpointDestroy", checkpoint);
}

weftResult_t weftTrainCheckpointAbort(weftTrainCheckpoint_t checkpoint) { return abort_training(checkpoint); }

weftResult_t weftTrainCheckpointSave(weftTrainCheckpoint_t checkpoint, const char* folder, const weftTrainBox_t* boxes,
                                     size_t boxCount, const weftTrainItem_t* items, size_t itemCount,
                                     weftTrainSave_t mode) {
    return guarded_training("weftTrainCheckpointSave", checkpoint, [&](train::Checkpoint& own) -> Status {
        train::Staging staging(true);
        std::vector<train::OwnBox> read;
        const auto read_all = [&]() -> Status {
            WEFT_TRY(check_path("weftTrainCheckpointSave", folder, "folder"));
            if (mode != weftTrainSaveBlocking && mode != weftTrainSaveBackground)
                return fail(error::argument_value, "weftTrainCheckpointSave: mode is {}; it must be a weftTrainSave_t",
                            int(mode));
            WEFT_TRY(read_boxes("weftTrainCheckpointSave", boxes, boxCount, staging, read));
            return read_items("weftTrainCheckpointSave", items, itemCount, own.rank(), read);
        };
        // The other ranks wait for this one: they get its failure.
        Status status = train::attempt(read_all);
        return own.save(std::move(status), folder ? folder : "", std::move(read), mode == weftTrainSaveBackground);
    });
}

weftResult_t weftTrainCheckpointTest(weftTrainCheckpoint_t checkpoint, int* done) {
    return guarded_training("weftTrainCheckpointTest", checkpoint, [&](train::Checkpoint& own) -> Status {
        WEFT_TRY(check_receiver("weftTrainCheckpointTest", done, "done"));
        *done = own.done() ? 1 : 0;
        return ok();
    });
}

weftResult_t weftTrainCheckpointWait(weftTrainCheckpoint_t checkpoint) {
    return guarded_training("weftTrainCheckpointWait", checkpoint, [&](train::Checkpoint& own) { return own.wait(); });
}

weftResult_t weftTrainCheckpointLoad(weftTrainCheckpoint_t checkpoint, const char* folder, const weftTrainBox_t* boxes,
                                     size_t boxCount) {
    return guarded_training("weftTrainCheckpointLoad", checkpoint, [&](train::Checkpoint& own) -> Status {
        train::Staging staging(false);
        std::vector<train::OwnBox> read;
        Status status = check_path("weftTrainCheckpointLoad", folder, "folder");
        if (status)
            status =
                train::attempt([&] { return read_boxes("weftTrainCheckpointLoad", boxes, boxCount, staging, read); });
        return own.load(std::move(status), folder ? folder : "", read, [&] { return staging.write_back(); });
    });
}

weftResult_t weftTrainCheckpointGetRanks(weftTrainCheckpoint_t checkpoint, int* ranks) {
    return guarded_training("weftTrainCheckpointGetRanks", checkpoint, [&](train::Checkpoint& own) -> Status {
        WEFT_TRY(check_receiver("weftTrainCheckpointGetRanks", ranks, "ranks"));
        *ranks = own.stored_ranks();
        return ok();
    });
}

weftResult_t weftTrainCheckpointGetItem(weftTrainCheckpoint_t checkpoint, const char* name, int rank, void* data,
                                        size_t capacity, size_t* bytes) {
    return guarded_training("weftTrainCheckpointGetItem", checkpoint, [&](train::Checkpoint& own) -> Status {
        WEFT_TRY(check_receiver("weftTrainCheckpointGetItem", name, "name"));
        WEFT_TRY(check_receiver("weftTrainCheckpointGetItem", bytes, "bytes"));
        const std::string stored = train::item_name(name, rank);
        const auto found = own.item_bytes(stored);
        if (!found) return found.status().copy();
        *bytes = *found;
        if (!data) return ok();
        if (capacity < *found)
            return fail(error::argument_value, "the item \"{}\" has {} bytes, but capacity is {}", name, *found,
                        capacity);
        return own.read_item(stored, data);
    });
}

weftResult_t weftTrainCheckpointExport(weftTrainCheckpoint_t checkpoint, const char* folder, const char* prefix,
                                       const char* file) {
    return guarded_training("weftTrainCheckpointExport", checkpoint, [&](train::Checkpoint& own) -> Status {
        Status status = check_path("weftTrainCheckpointExport", folder, "folder");
        if (status) status = check_path("weftTrainCheckpointExport", file, "file");
        return own.export_file(std::move(status), folder ? folder : "", prefix ? prefix : "", file ? file : "");
    });
}
}
