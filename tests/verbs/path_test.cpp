// Path attributes, the text of failed requests, and lists of devices.
#include "src/drivers/verbs/path.hpp"

#include "src/drivers/verbs/device_filter.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;
using namespace weft::internal::verbs;

namespace {

PathEnd end(int link_layer, uint16_t lid, uint8_t prefix, uint8_t last, int mtu = 5) {
    PathEnd made;
    made.host = "host" + std::to_string(last);
    made.device = "mlx5_0";
    made.link_layer = link_layer;
    made.lid = lid;
    made.mtu = mtu;
    made.gid.type = link_layer == link_ethernet ? gid_roce_v2 : gid_infiniband;
    made.gid.index = 3;
    made.gid.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, prefix};
    made.gid.bytes[15] = last;
    made.pair = 0x100u + last;
    return made;
}

std::string admitted(const char* text) {
    const Result<DeviceFilter> filter = DeviceFilter::read("WEFT_IB_HCA", text);
    if (!filter) return filter.status().failure().text();
    std::string all;
    for (const char* device : {"mlx5_0", "mlx5_1", "mlx5_10", "rxe0"})
        for (const int port : {1, 2})
            if (filter->admits(device, port)) all += fmt::format("{}{}:{}", all.empty() ? "" : " ", device, port);
    return all;
}

}  // namespace

TEST_CASE("the MTU of a path is the smaller active one", "[verbs]") {
    CHECK(path_mtu(end(2, 0, 0, 1, 5), end(2, 0, 0, 2, 3)) == 3);
    CHECK(mtu_bytes(3) == 1'024);
    CHECK(mtu_bytes(5) == 4'096);
    CHECK(mtu_bytes(0) == 0);
}

TEST_CASE("a GRH, with the traffic class, is used where it is needed", "[verbs]") {
    const PathOptions options{.service_level = 2, .traffic_class = 106, .hop_limit = 64};
    const Result<abi::Address> ethernet = path_address(end(2, 0, 0, 1), end(2, 0, 0, 2), options);
    REQUIRE(ethernet.ok());
    CHECK(int(ethernet->is_global) == 1);
    CHECK(int(ethernet->grh.traffic_class) == 106);
    CHECK(int(ethernet->grh.hop_limit) == 64);
    CHECK(int(ethernet->grh.sgid_index) == 3);
    CHECK(int(ethernet->grh.dgid[15]) == 2);
    CHECK(ethernet->dlid == 0);
    // E810 has LIDs on Ethernet.
    CHECK(path_address(end(2, 1, 0, 1), end(2, 7, 0, 2), options)->dlid == 0);

    const Result<abi::Address> subnet = path_address(end(1, 4, 0, 1), end(1, 5, 0, 2), options);
    REQUIRE(subnet.ok());
    CHECK(int(subnet->is_global) == 0);
    CHECK(int(subnet->grh.traffic_class) == 0);
    CHECK(subnet->dlid == 5);
    CHECK(int(subnet->sl) == 2);
    CHECK(int(path_address(end(1, 4, 0, 1), end(1, 5, 9, 2), options)->is_global) == 1);
    PathEnd asks = end(1, 5, 0, 2);
    asks.needs_grh = true;
    CHECK(int(path_address(end(1, 4, 0, 1), asks, options)->is_global) == 1);

    CHECK(path_address(end(1, 4, 0, 1), end(2, 0, 0, 2), options).status().id() == error::verbs_path);
    CHECK(path_address(end(1, 4, 0, 1), end(1, 0, 0, 2), options).status().sentence().find("host2") == 0);
}

TEST_CASE("a failed request is told with both ends, the path and what to check", "[verbs]") {
    abi::Completion completion{};
    completion.status = wc::retry_exceeded;
    completion.vendor_err = 0x81;
    const std::string text =
        completion_error(completion, end(2, 0, 0, 1, 3), end(2, 0, 0, 2), {.traffic_class = 106, .timeout = 17})
            .sentence();
    for (const char* part : {"from host1 mlx5_0:1 GID 3 fe80::1 QP 0x101 to host2 mlx5_0:1 GID 3 fe80::2 QP 0x102",
                             "retries exceeded (status 12, vendor code 0x81", "MTU 1024", "traffic class 106",
                             "timeout 17", "the peer does not answer"})
        CHECK(text.find(part) != std::string::npos);
    for (int status = 0; status < 30; ++status) {
        completion.status = status;
        CHECK(completion_error(completion, end(2, 0, 0, 1), end(2, 0, 0, 2), {})
                  .sentence()
                  .find(fmt::format("status {},", status)) != std::string::npos);
    }
    CHECK(completion_status_text(99) == "unknown status");
}

TEST_CASE("a list of devices has prefixes, whole names, ports, and exclusion", "[verbs]") {
    const std::string all = "mlx5_0:1 mlx5_0:2 mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_10:2 rxe0:1 rxe0:2";
    CHECK(admitted("") == all);
    CHECK(admitted("rxe") == "rxe0:1 rxe0:2");
    CHECK(admitted("mlx5_1") == "mlx5_1:1 mlx5_1:2 mlx5_10:1 mlx5_10:2");
    CHECK(admitted("=mlx5_1") == "mlx5_1:1 mlx5_1:2");
    CHECK(admitted("=mlx5_1:2,rxe0:1") == "mlx5_1:2 rxe0:1");
    CHECK(admitted("^mlx5") == "rxe0:1 rxe0:2");
    CHECK(admitted("^=mlx5_1, rxe0:2") == "mlx5_0:1 mlx5_0:2 mlx5_10:1 mlx5_10:2 rxe0:1");
    const Result<DeviceFilter> rails = DeviceFilter::read("WEFT_IB_HCA", "mlx5_0:1:4:2,rxe0");
    REQUIRE(rails.ok());
    CHECK(rails->wish("mlx5_0", 1)->rail == 4);
    CHECK(rails->wish("mlx5_0", 1)->plane == 2);
    CHECK(rails->wish("rxe0", 2)->rail == -1);
    CHECK(rails->wish("mlx5_0", 2) == nullptr);
    for (const char* wrong : {"mlx5_0:0", "mlx5_0:x", "mlx5_0:1:-1", "mlx5_0:1:2:3:4", ":1", "mlx5_0:", "rxe0,^mlx5"})
        CHECK(admitted(wrong).find("[option.value]") != std::string::npos);
}

TEST_CASE("a misspelt device has a suggestion", "[verbs]") {
    const std::vector<std::string> existing{"mlx5_0", "mlx5_1", "rxe0"};
    const Status status = DeviceFilter::read("WEFT_IB_HCA", "=mlx5_0,mlx4_1")->check(existing);
    CHECK(status.id() == error::option_names);
    CHECK(
        status.sentence() ==
        "WEFT_IB_HCA names mlx4_1, which is no RDMA device here; did you mean mlx5_1? There are mlx5_0, mlx5_1, rxe0");
    CHECK(DeviceFilter::read("WEFT_IB_HCA", "mlx5,rxe")->check(existing).ok());
    CHECK(DeviceFilter::read("WEFT_IB_HCA", "^mlx4")->check(existing).id() == error::option_names);
    CHECK(!DeviceFilter::read("WEFT_IB_HCA", "mlx5")->check({}).ok());
}
