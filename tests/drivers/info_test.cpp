// info_test.cpp: the GPU lines of `weft info`, with and without a driver.
#include <nlohmann/json.hpp>
#include <string>

#include "tests/catch.hpp"
#include "tests/subprocess.hpp"

using namespace weft::internal::test;
using Json = nlohmann::json;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

struct Told {
    std::string text;
    Json gpus;
};
Told info(const std::vector<std::string>& variables) {
    const ProcessResult text = run({WEFT_COMMAND, "info"}, variables),
                        json = run({WEFT_COMMAND, "info", "--json"}, variables);
    CHECK(text.status == 0);
    CHECK(json.status == 0);
    return {text.output, Json::parse(json.output)["gpus"]};
}

}  // namespace

TEST_CASE("on a machine without a driver the reason is shown, and the command works", "[info]") {
    const Told told = info({"WEFT_CUDA_LIBRARY=/nowhere/libcuda.so.1", "WEFT_NVML_LIBRARY=none"});
    CHECK(told.gpus["devices"].empty());
    CHECK(told.gpus["cuda_why_not"] != "");
    CHECK(contains(told.text, "CUDA driver   " + told.gpus["cuda_why_not"].get<std::string>()));
    CHECK(contains(told.text, "NVML          " + told.gpus["nvml_why_not"].get<std::string>()));
}

#ifdef FAKE_CUDA_LIBRARY
TEST_CASE("each device is shown with its abilities and its peers", "[info]") {
    const Told told = info({"WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY, "WEFT_NVML_LIBRARY=" FAKE_CUDA_LIBRARY,
                            "FAKE_CUDA=gpus 3; p2p 0 2 0; nvlink 0 0 1; nvlink 0 1 1; nvlink 1 3 switch; fabric 2 7; "
                            "attribute 2 20 3; leaks fatal"});
    CHECK(told.gpus["cuda_why_not"] == "");
    CHECK(told.gpus["cuda_version"] == "13.0");
    CHECK(told.gpus["nvml_version"] == "580.00.01");
    REQUIRE(told.gpus["devices"].size() == 3);
    const Json& first = told.gpus["devices"][0];
    CHECK(first["name"] == "Fake GPU 0");
    CHECK(first["peers"] == Json::array({1}));
    CHECK(first["nvlinks"] == 2);
    CHECK(first["nvlink_ends"] == "2 to 0000:1b:00.0");
    CHECK(told.gpus["devices"][1]["nvlink_ends"] == "1 to switches");
    CHECK(told.gpus["devices"][2]["compute_mode"] == "exclusive process");
    CHECK(first["nvlink_domain"] == "");
    CHECK(contains(told.text, "NVLink domain of hosts: cluster abababababababababababababababab, clique 7"));
    CHECK(contains(told.text, "for CUDA 13.0, " FAKE_CUDA_LIBRARY));
    CHECK(contains(told.text, "device 0      Fake GPU 0, sm_90, 16 multiprocessors, 4096 MiB, at 0000:1a:00.0"));
    CHECK(contains(told.text, "reaches devices: 1; NVLinks: 2 to 0000:1b:00.0"));
}

TEST_CASE("a device that cannot be queried is shown with its problem, the others as usual", "[info]") {
    const Told told = info(
        {"WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY, "WEFT_NVML_LIBRARY=none", "FAKE_CUDA=fault cuDeviceTotalMem 1 999"});
    CHECK(contains(told.gpus["devices"][0]["problem"].get<std::string>(), "query the memory of device 0"));
    CHECK(told.gpus["devices"][1]["problem"] == "");
    CHECK(contains(told.text, "device 0      CUDA could not query the memory of device 0: CUDA_ERROR_UNKNOWN"));
}

TEST_CASE("a driver that is too old for the device code is shown, with copies as the result", "[info]") {
    const std::vector<std::string> variables = {"WEFT_CUDA_LIBRARY=" FAKE_CUDA_LIBRARY, "WEFT_NVML_LIBRARY=none"};
    const Told now = info(variables);
    CHECK(now.gpus["device_code_why_not"] == "");
    CHECK_FALSE(contains(now.text, "too old"));
    auto with_old = variables;
    with_old.push_back("FAKE_CUDA=version 11080");
    const Told old = info(with_old);
    CHECK(old.gpus["cuda_version"] == "11.8");
    if (old.gpus["device_code"].empty()) return;
    const auto why = old.gpus["device_code_why_not"].get<std::string>();
    CHECK(contains(why, "the driver is too old for it: it supports CUDA 11.8, and the code was built with CUDA "));
    CHECK(contains(old.text, why + ",\n"));
    CHECK(contains(old.text, "calls on device memory work on copies in the host's"));
}
#endif
