// replicas.cpp: the copies in memory of train.h: checks handles and arguments, and calls src/train.
#include <cstring>
#include <string>
#include <vector>

#include "src/api/training/boxes.hpp"
#include "src/api/training/handle.hpp"
#include "src/train/checkpoint/replica.hpp"
#include "src/train/checkpoint/verdict.hpp"
#include "src/train/peers.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainReplica : TrainingHandle<weftTrainReplica, train::Replica> {
    static constexpr uint64_t living = 0x7466657774726570u, destroyed = 0x7466657774726565u;
    static constexpr const char* name = "replica";
    static constexpr const char* maker = "weftTrainReplicaCreate";
};

namespace {

Result<std::unique_ptr<train::Peers>> peers_of(weftComm_t comm) {
    WEFT_TRY(check_handle(comm));
    return train::Peers::over(comm);
}

}  // namespace

extern "C" {

weftResult_t weftTrainReplicaCreate(weftTrainReplica_t* replica, int jump, int copies) {
    return guarded([&]() -> Status {
        WEFT_TRY(check_receiver("weftTrainReplicaCreate", replica, "replica"));
        *replica = nullptr;
        constexpr int most = 1 << 15;
        if (jump < 1 || jump > most || copies < 1 || copies > most)
            return fail(error::argument_value,
                        "weftTrainReplicaCreate: jump is {} and copies is {}; each must be 1 to {}", jump, copies,
                        most);
        *replica = keep_training<weftTrainReplica>(std::make_shared<train::Replica>(jump, copies));
        return ok();
    });
}

weftResult_t weftTrainReplicaDestroy(weftTrainReplica_t replica) {
    return destroy_training("weftTrainReplicaDestroy", replica);
}

weftResult_t weftTrainReplicaSave(weftTrainReplica_t replica, weftComm_t comm, uint64_t version,
                                  const weftTrainBox_t* boxes, size_t boxCount, const weftTrainItem_t* items,
                                  size_t itemCount) {
    return guarded_training("weftTrainReplicaSave", replica, [&](train::Replica& own) -> Status {
        const auto peers = peers_of(comm);
        if (!peers) return peers.status().copy();
        std::vector<train::OwnBox> read;
        train::Staging staging(true);
        Status status =
            train::attempt([&] { return read_boxes("weftTrainReplicaSave", boxes, boxCount, staging, read); });
        if (status) status = read_items("weftTrainReplicaSave", items, itemCount, (*peers)->rank(), read);
        return own.save(**peers, std::move(status), version, read);
    });
}

weftResult_t weftTrainReplicaLoad(weftTrainReplica_t replica, weftComm_t comm, const weftTrainBox_t* boxes,
                                  size_t boxCount, uint64_t* version) {
    return guarded_training("weftTrainReplicaLoad", replica, [&](train::Replica& own) -> Status {
        const auto peers = peers_of(comm);
        if (!peers) return peers.status().copy();
        std::vector<train::OwnBox> read;
        train::Staging staging(false);
        Status status =
            train::attempt([&] { return read_boxes("weftTrainReplicaLoad", boxes, boxCount, staging, read); });
        auto loaded = own.load(**peers, std::move(status), read, [&] { return staging.write_back(); });
        if (!loaded) return loaded.take_status();
        if (version) *version = *loaded;
        return ok();
    });
}

weftResult_t weftTrainReplicaGetItem(weftTrainReplica_t replica, const char* name, int perRank, void* data,
                                     size_t capacity, size_t* bytes) {
    return guarded_training("weftTrainReplicaGetItem", replica, [&](train::Replica& own) -> Status {
        WEFT_TRY(check_receiver("weftTrainReplicaGetItem", name, "name"));
        WEFT_TRY(check_receiver("weftTrainReplicaGetItem", bytes, "bytes"));
        const auto* const item = own.item(name, perRank != 0);
        if (!item)
            return fail(error::train_checkpoint_model,
                        "no item \"{}\" was loaded: call weftTrainReplicaLoad first, with the items of that save",
                        name);
        *bytes = item->size();
        if (!data) return ok();
        if (capacity < item->size())
            return fail(error::argument_value, "the item \"{}\" has {} bytes, but capacity is {}", name, item->size(),
                        capacity);
        if (!item->empty()) memcpy(data, item->data(), item->size());
        return ok();
    });
}
}
