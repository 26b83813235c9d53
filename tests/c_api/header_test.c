/* header_test.c: weft.h alone in strict, pedantic C11, and the promises that its numbers make to a program ported from
 * NCCL. */
#include <weft/weft.h>

_Static_assert(weftSuccess == 0 && weftInvalidArgument == 4 && weftInvalidUsage == 5 && weftRemoteError == 6 &&
                   weftInProgress == 7 && weftTimeout == 8,
               "results are NCCL's");
_Static_assert(weftInt8 == 0 && weftUint64 == 5 && weftFloat16 == 6 && weftFloat32 == 7 && weftFloat64 == 8 &&
                   weftBfloat16 == 9,
               "types are NCCL's");
_Static_assert(weftSum == 0 && weftProd == 1 && weftMax == 2 && weftMin == 3 && weftAvg == 4, "operations are NCCL's");
_Static_assert(weftMemFlagBlock == 0 && weftMemTotal == weftMemDevice + 1, "the total is behind its parts");
_Static_assert(weftBand == 5 && weftBor == 6 && weftBxor == 7 && weftNumOps == 8, "behind them those of bits");
_Static_assert(sizeof(weftUniqueId) == WEFT_UNIQUE_ID_BYTES && WEFT_UNIQUE_ID_BYTES == 128, "an id is 128 bytes");
_Static_assert(sizeof(weftRedOp_t) == 4 && sizeof(weftDataType_t) == 4 && sizeof(weftResult_t) == 4, "enums are ints");

int main(void) {
    const weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    const weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    /* cudaStream_t is this type: a port passes its streams without a cast. */
    struct CUstream_st* const cuda_stream = NULL;
    const weftStream_t stream = cuda_stream;
    const weftHostStream_t host_stream = stream;
    int version = 0;
    if (info.size != sizeof info || info.code != weftSuccess || info.failedRank != -1 || info.peer != -1 ||
        info.operation)
        return 1;
    if (config.size != sizeof config || config.magic != WEFT_CONFIG_MAGIC || config.timeoutMs >= 0 || config.commName ||
        config.algo || config.deterministic != WEFT_CONFIG_UNDEF_INT || config.device != WEFT_CONFIG_UNDEF_INT ||
        config.maxBlocks != WEFT_CONFIG_UNDEF_INT || config.minBlocks != WEFT_CONFIG_UNDEF_INT ||
        config.launchOrderImplicit != WEFT_CONFIG_UNDEF_INT || config.blockPolicy != WEFT_CONFIG_UNDEF_INT ||
        host_stream)
        return 1;
    return weftGetVersion(&version) != weftSuccess || version != WEFT_VERSION_CODE;
}
