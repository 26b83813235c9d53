#include "src/nccl/translation.hpp"

namespace weft::internal::nccl {
namespace {

// Both libraries count their dynamic reductions from their number of built-in ones.
constexpr int dynamic_distance = int(weftNumOps) - int(ncclNumOps);

}  // namespace

ncclResult_t nccl_result(weftResult_t result) {
    switch (result) {
        case weftSuccess: return ncclSuccess;
        case weftUnhandledCudaError: return ncclUnhandledCudaError;
        case weftSystemError: return ncclSystemError;
        case weftInternalError: return ncclInternalError;
        case weftInvalidArgument: return ncclInvalidArgument;
        case weftInvalidUsage: return ncclInvalidUsage;
        case weftRemoteError: return ncclRemoteError;
        case weftInProgress: return ncclInProgress;
        case weftTimeout: return ncclTimeout;
        case weftMismatch: return ncclInvalidUsage;
        case weftNumResults: break;
    }
    return ncclInternalError;
}

weftResult_t weft_result(ncclResult_t result) {
    switch (result) {
        case ncclSuccess: return weftSuccess;
        case ncclUnhandledCudaError: return weftUnhandledCudaError;
        case ncclSystemError: return weftSystemError;
        case ncclInternalError: return weftInternalError;
        case ncclInvalidArgument: return weftInvalidArgument;
        case ncclInvalidUsage: return weftInvalidUsage;
        case ncclRemoteError: return weftRemoteError;
        case ncclInProgress: return weftInProgress;
        case ncclTimeout: return weftTimeout;
        case ncclNumResults: break;
    }
    return weftNumResults;
}

weftDataType_t weft_type(ncclDataType_t type) {
    switch (type) {
        case ncclInt8: return weftInt8;
        case ncclUint8: return weftUint8;
        case ncclInt32: return weftInt32;
        case ncclUint32: return weftUint32;
        case ncclInt64: return weftInt64;
        case ncclUint64: return weftUint64;
        case ncclFloat16: return weftFloat16;
        case ncclFloat32: return weftFloat32;
        case ncclFloat64: return weftFloat64;
        case ncclBfloat16: return weftBfloat16;
        case ncclFloat8e4m3: return weftFloat8e4m3;
        case ncclFloat8e5m2: return weftFloat8e5m2;
        case ncclNumTypes: break;
    }
    return weftNumTypes;
}

weftRedOp_t weft_op(ncclRedOp_t op) {
    switch (op) {
        case ncclSum: return weftSum;
        case ncclProd: return weftProd;
        case ncclMax: return weftMax;
        case ncclMin: return weftMin;
        case ncclAvg: return weftAvg;
        default: break;
    }
    if (op < ncclNumOps || op > ncclMaxRedOp - dynamic_distance) return weftMaxRedOp;
    return weftRedOp_t(int(op) + dynamic_distance);
}

ncclRedOp_t nccl_op(weftRedOp_t op) { return ncclRedOp_t(int(op) - dynamic_distance); }

weftScalarResidence_t weft_residence(ncclScalarResidence_t residence) {
    switch (residence) {
        case ncclScalarDevice: return weftScalarDevice;
        case ncclScalarHostImmediate: return weftScalarHostImmediate;
    }
    return weftScalarResidence_t(-1);
}

int weft_shrink_flags(int flags) {
    switch (flags) {
        case NCCL_SHRINK_DEFAULT: return WEFT_SHRINK_DEFAULT;
        case NCCL_SHRINK_ABORT: return WEFT_SHRINK_ABORT;
        default: return -1;
    }
}

}  // namespace weft::internal::nccl
