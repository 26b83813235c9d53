// collectives.cpp: collectives, each also with the settings of one call, messages, and user reductions.
#include "src/nccl/configs.hpp"
#include "src/nccl/last_error.hpp"
#include "src/nccl/translation.hpp"

using namespace weft::internal::nccl;

extern "C" {

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm) {
    weftRedOp_t made = weftSum;
    const weftResult_t result = weftRedOpCreatePreMulSum(op ? &made : nullptr, scalar, weft_type(datatype),
                                                         weft_residence(residence), weft_comm(comm));
    if (result == weftSuccess) *op = nccl_op(made);
    return finish(result);
}
ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    return finish(weftRedOpDestroy(weft_op(op), weft_comm(comm)));
}

ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                         int root, ncclComm_t comm, cudaStream_t stream) {
    return finish(
        weftReduce(sendbuff, recvbuff, count, weft_type(datatype), weft_op(op), root, weft_comm(comm), stream));
}
ncclResult_t pncclReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                               ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream,
                               const ncclCollConfig_t* config) {
    return configured("ncclReduceConfig", config, weft_comm(comm),
                      [&] { return pncclReduce(sendbuff, recvbuff, count, datatype, op, root, comm, stream); });
}

ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream) {
    return finish(weftBcast(buff, count, weft_type(datatype), root, weft_comm(comm), stream));
}
ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                            ncclComm_t comm, cudaStream_t stream) {
    return finish(weftBroadcast(sendbuff, recvbuff, count, weft_type(datatype), root, weft_comm(comm), stream));
}
ncclResult_t pncclBroadcastConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
    return configured("ncclBroadcastConfig", config, weft_comm(comm),
                      [&] { return pncclBroadcast(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}

ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
                            ncclComm_t comm, cudaStream_t stream) {
    return finish(weftAllReduce(sendbuff, recvbuff, count, weft_type(datatype), weft_op(op), weft_comm(comm), stream));
}
ncclResult_t pncclAllReduceConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                  ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                  const ncclCollConfig_t* config) {
    return configured("ncclAllReduceConfig", config, weft_comm(comm),
                      [&] { return pncclAllReduce(sendbuff, recvbuff, count, datatype, op, comm, stream); });
}

ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return finish(
        weftReduceScatter(sendbuff, recvbuff, recvcount, weft_type(datatype), weft_op(op), weft_comm(comm), stream));
}
ncclResult_t pncclReduceScatterConfig(const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype,
                                      ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                      const ncclCollConfig_t* config) {
    return configured("ncclReduceScatterConfig", config, weft_comm(comm),
                      [&] { return pncclReduceScatter(sendbuff, recvbuff, recvcount, datatype, op, comm, stream); });
}

ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream) {
    return finish(weftAllGather(sendbuff, recvbuff, sendcount, weft_type(datatype), weft_comm(comm), stream));
}
ncclResult_t pncclAllGatherConfig(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                                  ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
    return configured("ncclAllGatherConfig", config, weft_comm(comm),
                      [&] { return pncclAllGather(sendbuff, recvbuff, sendcount, datatype, comm, stream); });
}

ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
                           cudaStream_t stream) {
    return finish(weftAlltoAll(sendbuff, recvbuff, count, weft_type(datatype), weft_comm(comm), stream));
}
ncclResult_t pncclAlltoAllConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
    return configured("ncclAlltoAllConfig", config, weft_comm(comm),
                      [&] { return pncclAlltoAll(sendbuff, recvbuff, count, datatype, comm, stream); });
}

ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                         ncclComm_t comm, cudaStream_t stream) {
    return finish(weftGather(sendbuff, recvbuff, count, weft_type(datatype), root, weft_comm(comm), stream));
}
ncclResult_t pncclGatherConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                               ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
    return configured("ncclGatherConfig", config, weft_comm(comm),
                      [&] { return pncclGather(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}

ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                          ncclComm_t comm, cudaStream_t stream) {
    return finish(weftScatter(sendbuff, recvbuff, count, weft_type(datatype), root, weft_comm(comm), stream));
}
ncclResult_t pncclScatterConfig(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root,
                                ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
    return configured("ncclScatterConfig", config, weft_comm(comm),
                      [&] { return pncclScatter(sendbuff, recvbuff, count, datatype, root, comm, stream); });
}

ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
    return finish(weftSend(sendbuff, count, weft_type(datatype), peer, weft_comm(comm), stream));
}
ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
    return finish(weftRecv(recvbuff, count, weft_type(datatype), peer, weft_comm(comm), stream));
}
}
