/* header_test.c: train.h alone in strict, pedantic C11. */
#include <weft/train.h>

_Static_assert(sizeof(weftTrainMode_t) == 4 && sizeof(weftTrainDivisor_t) == 4, "enums are ints");

int main(void) {
    const weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    const weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
    const weftTrainHook_t hooks[] = {weftTrainHookAverage, weftTrainHookFloat16, weftTrainHookBfloat16};
    if (config.size != sizeof config || config.magic != WEFT_TRAIN_DDP_CONFIG_MAGIC || config.bucketCapBytes ||
        config.divisor != weftTrainDivideByRanks || config.findUnused || config.staticGraph ||
        !config.broadcastBuffers || config.join || config.hook || config.hookContext)
        return 1;
    if (tensor.size != sizeof tensor || tensor.name || tensor.data || tensor.gradient || tensor.count) return 1;
    const weftTrainShardConfig_t shard = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
    const weftTrainUnit_t unit = WEFT_TRAIN_UNIT_INITIALIZER;
    const weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
    const weftTrainShardStats_t stats = WEFT_TRAIN_SHARD_STATS_INITIALIZER;
    if (shard.size != sizeof shard || shard.magic != WEFT_TRAIN_SHARD_CONFIG_MAGIC || shard.sharding ||
        shard.stage != weftTrainShardParameters || shard.shardRanks || shard.divisor != 0)
        return 1;
    if (unit.size != sizeof unit || unit.reshardRanks || piece.size != sizeof piece || stats.size != sizeof stats)
        return 1;
    const weftTrainCompressorConfig_t compressor = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
    if (compressor.size != sizeof compressor || compressor.magic != WEFT_TRAIN_COMPRESSOR_CONFIG_MAGIC ||
        compressor.method != weftTrainPowerSgd || compressor.startIteration != -1 || !compressor.errorFeedback ||
        compressor.rank != 1 || compressor.leastRate != 2 || !compressor.warmStart || compressor.blockCount != 256 ||
        compressor.float8 != weftFloat8e4m3)
        return 1;
    const weftTrainBox_t box = WEFT_TRAIN_BOX_INITIALIZER;
    const weftTrainItem_t item = WEFT_TRAIN_ITEM_INITIALIZER;
    if (box.size != sizeof box || box.dims || box.shape || box.extents || item.size != sizeof item || item.perRank)
        return 1;
    const weftTrainStragglersConfig_t stragglers = WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER;
    if (stragglers.size != sizeof stragglers || stragglers.magic != WEFT_TRAIN_STRAGGLERS_CONFIG_MAGIC ||
        stragglers.intervalSeconds != 60 || stragglers.intervalSteps || stragglers.threshold != 0.75)
        return 1;
    return hooks[0] == hooks[1] || weftTrainDdpFinish(NULL, NULL) != weftInvalidArgument;
}
