// translation.hpp: NCCL's numbers and handles as Weft's, and back. Numbers go through tables: Weft's bitwise reductions
// have the numbers of NCCL's first dynamic ones, and Weft may add numbers of its own.
#pragma once
#include <weft/weft.h>

#include "src/nccl/abi.h"

namespace weft::internal::nccl {

// A number that NCCL lacks becomes the nearest in meaning: weftMismatch is ncclInvalidUsage.
ncclResult_t nccl_result(weftResult_t result);
weftResult_t weft_result(ncclResult_t result);

// A number that does not exist becomes one that Weft refuses.
weftDataType_t weft_type(ncclDataType_t type);
weftRedOp_t weft_op(ncclRedOp_t op);
ncclRedOp_t nccl_op(weftRedOp_t op);
weftScalarResidence_t weft_residence(ncclScalarResidence_t residence);
int weft_shrink_flags(int flags);

// A handle of this library is Weft's handle: Weft recognises handles that were destroyed.
inline weftComm_t weft_comm(ncclComm_t comm) { return reinterpret_cast<weftComm_t>(comm); }
inline weftComm_t* weft_comm(ncclComm_t* comm) { return reinterpret_cast<weftComm_t*>(comm); }
inline weftWindow_t weft_window(ncclWindow_t window) { return reinterpret_cast<weftWindow_t>(window); }
inline weftWindow_t* weft_window(ncclWindow_t* window) { return reinterpret_cast<weftWindow_t*>(window); }

}  // namespace weft::internal::nccl
