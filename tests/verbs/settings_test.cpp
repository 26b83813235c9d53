// The options for RDMA as settings, and the ports that they admit, on the fake libibverbs.
#include "src/drivers/verbs/settings.hpp"

#include <filesystem>
#include <functional>
#include <map>

#include "src/drivers/verbs/port_text.hpp"
#include "src/drivers/verbs/ports.hpp"
#include "src/drivers/verbs/report.hpp"
#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/verbs/side.hpp"

using namespace weft::internal;
using namespace weft::internal::verbs;

namespace {

const test::FakeVerbs steered(FAKE_IBVERBS_LIBRARY);

// Devices in place of the fake's own.
class World {
  public:
    explicit World(const std::string& statements) { steered.run("no_devices;" + statements); }
    World(const World&) = delete;
    World& operator=(const World&) = delete;
    ~World() { steered.run("no_devices; device fake0; device fake1"); }
};

// Options with values of this origin.
Options with(const std::function<void(Options&)>& change, std::initializer_list<OptionIndex> given = {},
             Origin origin = Origin::environment) {
    Options options;
    options.verbs_library = FAKE_IBVERBS_LIBRARY;
    change(options);
    for (const OptionIndex index : given) options.origins[int(index)] = origin;
    return options;
}

std::string refusal_of(const Options& options) {
    const Result<IbSettings> settings = read_ib_settings(options);
    return settings ? "" : settings.status().failure().text();
}

IbReport report_of(const std::string& statements, const Options& options) {
    const World made("device a; device b 2;" + statements);
    return describe_ib(options);
}

std::map<std::string, std::string> reasons(const IbReport& report) {
    std::map<std::string, std::string> all;
    for (const IbPort& port : report.ports) all[port.name()] = port.why_not;
    return all;
}

}  // namespace

TEST_CASE("RDMA options become settings, and what is unset follows from the link layer and the rails", "[verbs]") {
    const Result<IbSettings> standard = read_ib_settings(Options());
    REQUIRE(standard);
    CHECK(standard->path_with(1).timeout == 20);
    CHECK(standard->path_with(2).timeout == 17);
    CHECK(standard->path_with(1).retries == 6);
    CHECK(standard->path_with(1).repeat_us() == 7 * 4'294'967);
    CHECK(standard->pairs_on(link_infiniband) == 1);
    CHECK(standard->pairs_on(link_ethernet) == 2);
    CHECK(standard->adaptive_routing.on(link_infiniband));
    CHECK(!standard->adaptive_routing.on(link_ethernet));
    CHECK(standard->gdr_level == GdrLevel::pxb);

    const Result<IbSettings> given = read_ib_settings(with([](Options& options) {
        options.ib_timeout = 22;
        options.ib_sl = 3;
        options.ib_traffic_class = 106;
        options.ib_qps = 4;
        options.ib_adaptive_routing = 1;
        options.ib_addr_family = "AF_INET6";
        options.ib_addr_range = "fd00::/8";
        options.ib_pkey = "0x8001";
        options.gdr_level = "SYS";
    }));
    REQUIRE(given);
    CHECK(given->path_with(2).timeout == 22);
    CHECK(given->path_with(2).service_level == 3);
    CHECK(given->path_with(2).traffic_class == 106);
    CHECK(given->pairs_on(link_infiniband) == 4);
    CHECK(given->adaptive_routing.on(link_ethernet));
    CHECK(given->gids.family == AddressFamily::ipv6);
    CHECK(given->gids.range.has_value());
    CHECK(given->partition_key.value == 0x8001);
    CHECK(given->gdr_level == GdrLevel::sys);
}

TEST_CASE("a wrong value for RDMA is an error of Weft's variable and a warning of an alias", "[verbs]") {
    struct Wrong {
        OptionIndex index;
        std::string Options::*field;
        const char* value;
    };
    for (const Wrong& wrong : {Wrong{OptionIndex::ib_devices, &Options::ib_devices, "mlx5_0:0"},
                               Wrong{OptionIndex::ib_addr_family, &Options::ib_addr_family, "IPv4"},
                               Wrong{OptionIndex::ib_addr_range, &Options::ib_addr_range, "10.0.0/8"},
                               Wrong{OptionIndex::ib_pkey, &Options::ib_pkey, "0x8000"},
                               Wrong{OptionIndex::ib_pkey, &Options::ib_pkey, "0x18001"},
                               Wrong{OptionIndex::ib_pkey, &Options::ib_pkey, "first"},
                               Wrong{OptionIndex::gdr_level, &Options::gdr_level, "near"}}) {
        const auto change = [&](Options& options) { options.*wrong.field = wrong.value; };
        INFO(wrong.value);
        CHECK(refusal_of(with(change, {wrong.index})).find("[option.value]") != std::string::npos);
        const Result<IbSettings> ignored = read_ib_settings(with(change, {wrong.index}, Origin::alias));
        REQUIRE(ignored);
        CHECK(ignored->warnings.size() == 1);
        CHECK(ignored->devices.admits("mlx5_7", 1));
        CHECK(!ignored->partition_key.value);
    }
}

TEST_CASE("a partition key has one origin: Weft's variable, or else the value", "[verbs]") {
    const auto both = [](Options& options) {
        options.ib_pkey = "0x8001";
        options.ib_pkey_index = 2;
    };
    CHECK(refusal_of(with(both, {OptionIndex::ib_pkey, OptionIndex::ib_pkey_index})).find("[option.conflict]") !=
          std::string::npos);
    const auto of_nccl_and_ucx =
        read_ib_settings(with(both, {OptionIndex::ib_pkey, OptionIndex::ib_pkey_index}, Origin::alias));
    REQUIRE(of_nccl_and_ucx);
    CHECK(of_nccl_and_ucx->partition_key.value == 0x8001);
    CHECK(of_nccl_and_ucx->partition_key.index == -1);
    Options own_index = with(both, {OptionIndex::ib_pkey}, Origin::alias);
    own_index.origins[int(OptionIndex::ib_pkey_index)] = Origin::environment;
    CHECK(read_ib_settings(own_index)->partition_key.index == 2);
    CHECK(!read_ib_settings(own_index)->partition_key.value);

    const std::vector<uint16_t> table{0x0001, 0xffff, 0, 0x8001};
    IbSettings settings;
    CHECK(*settings.partition_key.choose(table, "p") == 1);
    settings.partition_key.value = 0x0001;
    CHECK(*settings.partition_key.choose(table, "p") == 0);
    settings.partition_key.value = 0x8005;
    CHECK(settings.partition_key.choose(table, "p").status().sentence() ==
          "p has no partition key 0x8005; it has 0x1, 0xffff, 0x8001");
    settings.partition_key.index = 3;
    CHECK(*settings.partition_key.choose(table, "p") == 3);
    settings.partition_key.index = 2;
    CHECK(settings.partition_key.choose(table, "p").status().id() == error::option_value);
}

TEST_CASE("every port is reported with its facts, and with the reason if it is not used", "[verbs]") {
    const Options all = with([](Options&) {});
    IbReport report = report_of("port b:2 down; layer a 1; speed a 2 64; mtu b 3; grh a 1", all);
    CHECK(report.status.ok());
    CHECK(report.why_not.empty());
    const auto prefers = [](const std::string& layer) {
        return "this host has ports of two link layers, and prefers those of " + layer +
               " (WEFT_IB_DEVICES chooses others)";
    };
    CHECK(reasons(report) == std::map<std::string, std::string>{{"a:1", ""}, {"b:1", ""}, {"b:2", "the port is DOWN"}});
    CHECK(preferred_link_layer(report.ports) == link_ethernet);
    CHECK(report.ports[0].notes.back() == prefers("RoCE"));
    CHECK(report.ports[0].summary() == "InfiniBand, LID 1, 200 Gb/s, MTU 4096, 4 GIDs, GRH required");
    CHECK(report.ports[1].summary() == "RoCE, 400 Gb/s, MTU 1024, 4 GIDs");
    REQUIRE(report.ports[1].notes.size() >= 1);
    CHECK(report.ports[1].notes[0] == "its active MTU is 1024: set the MTU of its network device to 4200 or more");

    report = report_of("layer a 1", with([](Options& options) { options.ib_devices = "a,b:2"; }));  // as fast
    CHECK(reasons(report) ==
          std::map<std::string, std::string>{{"a:1", ""}, {"b:1", "WEFT_IB_DEVICES leaves it out"}, {"b:2", ""}});
    CHECK(preferred_link_layer(report.ports) == link_infiniband);
    CHECK(report.ports[2].notes.back() == prefers("InfiniBand"));
    report = report_of("", with([](Options& options) { options.ib_devices = "b:2:1:7"; }));
    CHECK(reasons(report)["a:1"] == "WEFT_IB_DEVICES leaves it out");
    CHECK(reasons(report)["b:1"] == "WEFT_IB_DEVICES leaves it out");
    CHECK(report.ports[2].usable());
    CHECK(report.ports[2].wish.rail == 1);
    CHECK(report.ports[2].wish.plane == 7);

    report = report_of("", with([](Options& options) { options.ib_disable = 1; }));
    CHECK(report.why_not == "WEFT_IB_DISABLE is 1");
    report = report_of("no_gids a; no_gids b; no_gids b:2", all);
    CHECK(report.why_not.find("the port has no GID") != std::string::npos);
    report = report_of("remove a", all);
    CHECK(reasons(report)["a"].find("a cannot be opened") == 0);
}

TEST_CASE("a port of another network is not used, and the reason names other transports", "[verbs]") {
    const Options all = with([](Options&) {});
    IbReport report = report_of("transport a 1; layer b 0", all);  // iWARP, and EFA
    for (const char* port : {"a:1", "b:1"})
        CHECK(reasons(report)[port].find("neither InfiniBand nor RoCE") != std::string::npos);
    CHECK(reasons(report)["a:1"].find("WEFT_TRANSPORTS=shm,ucx") != std::string::npos);
    CHECK(reasons(report)["b:2"].empty());
    CHECK(report.ports[0].summary().find("another network, ") == 0);
    CHECK(preferred_link_layer(report.ports) == link_ethernet);
    report = report_of("transport a 4; transport b 4", all);
    CHECK(report.why_not.find("neither InfiniBand nor RoCE") != std::string::npos);
}

TEST_CASE("a misspelt device or GID index is an error that names the choices, and a note if it is NCCL's", "[verbs]") {
    const auto devices = [](Options& options) { options.ib_devices = "a,c"; };
    IbReport report = report_of("", with(devices, {OptionIndex::ib_devices}));
    CHECK(report.status.id() == error::option_names);
    CHECK(report.status.sentence().find("There are a, b") != std::string::npos);
    report = report_of("", with(devices, {OptionIndex::ib_devices}, Origin::alias));
    CHECK(report.status.ok());
    CHECK(report.ports[0].usable());
    CHECK(!report.ports[1].usable());

    const auto index = [](Options& options) { options.ib_gid_index = 9; };
    report = report_of("gid a 9 0000:0000:0000:0000:0000:ffff:0a00:0001 2 1", with(index, {OptionIndex::ib_gid_index}));
    CHECK(report.status.id() == error::option_value);
    CHECK(reasons(report)["a:1"].empty());
    CHECK(reasons(report)["b:1"].find("b:1 has no GID of index 9; it has index 0 fe80::") == 0);
    report = report_of("", with(index, {OptionIndex::ib_gid_index}, Origin::alias));
    CHECK(report.status.ok());
    CHECK(report.why_not.empty());
    CHECK(report.ports[0].notes.back() == "it has no GID of index 9: one is chosen");

    const auto pkey = [](Options& options) { options.ib_pkey = "0x8001"; };
    report = report_of("pkey a 5 8001", with(pkey, {OptionIndex::ib_pkey}));
    CHECK(report.ports[0].pkey_index == 5);
    CHECK(reasons(report)["b:2"] == "b:2 has no partition key 0x8001; it has 0xffff");
}

TEST_CASE("a GID that the kernel refuses is not used, and one of another namespace is", "[verbs]") {
    const Options all = with([](Options&) {});
    // ENETUNREACH, and EPERM, which does not say that the GID is wrong.
    IbReport report = report_of("refuse_gid a 3 101; refuse_gid a 1 1", all);
    REQUIRE(report.ports[0].gids.size() == 4);
    CHECK(report.ports[0].gids[3].refused == 101);
    CHECK(report.ports[0].gids[1].refused == 0);
    CHECK(report.ports[0].usable());
    CHECK(report.ports[0].notes.back().find("another network namespace") != std::string::npos);
    const std::vector<GidPair> pairs = rank_gid_pairs(report.ports[0].gids, report.ports[1].gids, {});
    for (const GidPair& pair : pairs) CHECK(pair.own != 3);
    CHECK(!pairs.empty());
    report = report_of("refuse_gid a 0 22; refuse_gid a 1 22; refuse_gid a 2 22; refuse_gid a 3 22", all);
    CHECK(reasons(report)["a:1"] == "the network device of each of its GIDs is down or gone");
}

TEST_CASE("a report says why a process has no RDMA at all", "[verbs]") {
    const test::Folder folder;
    const std::string sys = folder.path / "sys", dev = folder.path / "dev";
    const World no_devices("");
    const Options fake = with([](Options&) {});
    CHECK(describe_ib(fake, sys, dev).why_not == "this host has no RDMA device");
    std::filesystem::create_directories(sys + "/class/infiniband/mlx5_0");
    CHECK(describe_ib(fake, sys, dev).why_not.find("/infiniband is missing: start the container") != std::string::npos);
    std::filesystem::create_directories(dev + "/infiniband");
    CHECK(describe_ib(fake, sys, dev).why_not.find("install its providers") != std::string::npos);
    Options none = fake;
    none.verbs_library = "none";
    CHECK(!describe_ib(none, sys, dev).why_not.empty());
    none.verbs_library = "/no/such/libibverbs.so";
    CHECK(describe_ib(none, sys, dev).why_not.find("/no/such/libibverbs.so") != std::string::npos);
    none.verbs_library.clear();
    none.ib_pkey = "x";
    const IbReport wrong = describe_ib(none, sys, dev);
    CHECK(wrong.status.id() == error::option_value);
    CHECK(!wrong.why_not.empty());
}

TEST_CASE("the speed of a port follows from its lanes, and is unknown from XDR on", "[verbs]") {
    abi::PortAttributes port{};
    port.width = 2;
    const std::map<int, int> speeds{{32, 100'000}, {64, 200'000}, {128, 400'000}, {0, -1}, {3, -1}};
    for (const auto& [speed, mbps] : speeds) {
        port.speed = uint8_t(speed);
        CHECK(lanes_mbps(port) == mbps);
    }
    port.width = 16;
    port.speed = 128;
    CHECK(lanes_mbps(port) == 200'000);
}
