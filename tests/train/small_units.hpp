// small_units.hpp: the registration of a model of two units, of which a test changes something.
#pragma once
#include <weft/train.h>

#include <vector>

namespace weft::internal::test {

// "body" with "weight" and "bias", and "head" with "head": 8 elements each.
struct SmallUnits {
    std::vector<float> values = std::vector<float>(24, 1);
    weftTrainTensor_t tensors[3] = {WEFT_TRAIN_TENSOR_INITIALIZER, WEFT_TRAIN_TENSOR_INITIALIZER,
                                    WEFT_TRAIN_TENSOR_INITIALIZER};
    weftTrainUnit_t units[2] = {WEFT_TRAIN_UNIT_INITIALIZER, WEFT_TRAIN_UNIT_INITIALIZER};
    weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
    size_t count = 2;

    SmallUnits() {
        const char* const names[] = {"weight", "bias", "head"};
        for (int i = 0; i < 3; ++i) {
            tensors[i].name = names[i];
            tensors[i].data = values.data() + 8 * i;
            tensors[i].count = 8;
        }
        units[0].name = "body";
        units[0].parameters = tensors;
        units[0].parameterCount = 2;
        units[1].name = "head";
        units[1].parameters = tensors + 2;
        units[1].parameterCount = 1;
    }
    SmallUnits(const SmallUnits&) = delete;
    weftResult_t create(weftComm_t comm, weftTrainShard_t* shard) const {
        return weftTrainShardCreate(shard, comm, units, count, &config);
    }
};

}  // namespace weft::internal::test
