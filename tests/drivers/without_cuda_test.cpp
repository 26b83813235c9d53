// without_cuda_test.cpp: the errors of a build without GPU support in a program that uses CUDA.
#include <dlfcn.h>
#include <weft/weft.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

TEST_CASE(
    "a build without GPU support warns a program that uses CUDA once, and refuses device memory that it recognises",
    "[without_cuda]") {
    const Folder folder;
    const std::string log = folder.path / "log";
    setenv("WEFT_CUDA_LIBRARY", CUDA_ELSEWHERE, 1);
    setenv("WEFT_DEBUG", "WARN", 1);
    setenv("WEFT_DEBUG_FILE", log.c_str(), 1);
    REQUIRE(dlopen(CUDA_ELSEWHERE, RTLD_NOW | RTLD_LOCAL) != nullptr);
    weftUniqueId id;
    float value = 1;
    for (int round = 0; round < 2; ++round) {
        weftComm_t comm = nullptr;
        REQUIRE(weftGetUniqueId(&id) == weftSuccess);
        REQUIRE(weftCommInitRank(&comm, 1, id, 0) == weftSuccess);
        CHECK(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, comm, reinterpret_cast<weftStream_t>(&value)) ==
              weftInvalidArgument);
        CHECK_THAT(weftGetLastError(comm), Catch::Contains("has no device, for this build of Weft has no GPU support"));
        weftRedOp_t op;
        CHECK(weftRedOpCreatePreMulSum(&op, &value, weftFloat32, weftScalarDevice, comm) == weftInvalidArgument);
        CHECK(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, comm, nullptr) == weftSuccess);
        CHECK(weftCommDestroy(comm) == weftSuccess);
    }
    std::ifstream stream(log);
    const std::string said(std::istreambuf_iterator<char>(stream), {});
    const size_t first = said.find("a CUDA device is current, and this build of Weft has no GPU support");
    REQUIRE(first != std::string::npos);
    CHECK(said.find("a CUDA device is current", first + 1) == std::string::npos);
    const int device = 0;
    weftComm_t comm = nullptr;
    CHECK(weftCommInitAll(&comm, 1, &device) == weftInvalidArgument);
    CHECK_ERROR(last_error(), "argument.device");
    void* memory = nullptr;
    CHECK(weftMemAlloc(&memory, 1) == weftInvalidUsage);
    CHECK_ERROR(last_error(), "gpu.not-built");
    CHECK_THAT(weftGetLastError(nullptr), Catch::Contains("weftHostAlloc"));
}

}  // namespace weft::internal::test
