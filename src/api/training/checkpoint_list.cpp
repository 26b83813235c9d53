// checkpoint_list.cpp: weftTrainCheckpointList of train.h: the contents of a checkpoint.
#include <string>
#include <vector>

#include "src/api/guard.hpp"
#include "src/api/training/boxes.hpp"
#include "src/base/datatype.hpp"
#include "src/train/checkpoint/data.hpp"
#include "src/train/checkpoint/folder.hpp"
#include "weft/train.h"

using namespace weft::internal;

namespace {

Status pass_on(const train::OpenedCheckpoint& opened, const train::StoredBox& box, weftTrainStoredFunction_t function,
               void* context) {
    const auto item = train::item_of(box.tensor);
    weftTrainStored_t stored = {};
    stored.size = sizeof stored;
    stored.name = item ? item->name.c_str() : box.tensor.c_str();
    stored.isItem = item ? 1 : 0;
    stored.rank = item ? item->rank : -1;
    stored.datatype = box.type;
    stored.dims = int(box.shape.size());
    stored.shape = box.shape.data();
    stored.bytes = train::volume_of(box.shape) * size_of(box.type);
    std::vector<std::byte> data(item ? stored.bytes : 0);
    if (item) {
        WEFT_TRY(train::DataReader(opened.folder, opened.metadata).read({&box, box.box}, box.box, data.data()));
        stored.data = data.data();
    }
    function(&stored, context);
    return ok();
}

}  // namespace

extern "C" {

weftResult_t weftTrainCheckpointList(const char* folder, weftTrainStoredFunction_t function, void* context,
                                     int* ranks) {
    return guarded([&]() -> Status {
        WEFT_TRY(check_path("weftTrainCheckpointList", folder, "folder"));
        if (!function) return fail(error::argument_null, "weftTrainCheckpointList: function is NULL");
        const auto opened = train::open_alone(folder);
        if (!opened) return opened.status().copy();
        if (ranks) *ranks = opened->ranks();
        for (const auto& [name, boxes] : opened->index.tensors())
            WEFT_TRY(pass_on(*opened, *boxes.front(), function, context));
        return ok();
    });
}
}
