// options_test.cpp: the values that the environment may have, and an error for each wrong one.
#include "src/base/options.hpp"

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/service_variables.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"

using namespace weft::internal;

namespace {

// An environment with these variables and no other of ours. Ends with none.
class Environment {
  public:
    Environment() { clear(); }
    Environment(std::initializer_list<std::pair<std::string, std::string>> variables) {
        clear();
        for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    }
    explicit Environment(const std::map<std::string, std::string>& variables) {
        clear();
        for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    }
    ~Environment() { clear(); }

  private:
    static void clear() {
        std::vector<std::string> names;
        for (char** entry = environ; *entry != nullptr; ++entry) {
            std::string text = *entry;
            if (text.starts_with("WEFT_") || text.starts_with("NCCL_") || text.starts_with("UCX_"))
                names.push_back(text.substr(0, text.find('=')));
        }
        for (const std::string& name : names) unsetenv(name.c_str());
    }
};

std::string objection(const std::string& variable, const std::string& value) {
    Environment environment{{variable, value}};
    Result<Options> options = read_options();
    CHECK_ERROR(options, options ? "" : "option.value");
    return options.status().sentence();
}

}  // namespace

TEST_CASE("an empty environment gives every option its default", "[options]") {
    Environment environment;
    Result<Options> options = read_options();
    REQUIRE(options);
    CHECK(options->timeout_ms == 600'000);
    CHECK(options->direct == 1);
    CHECK(options->algo.empty());
    CHECK(options->warnings.empty());
    for (size_t i = 0; i < option_rows().size(); ++i) {
        INFO(option_rows()[i].name);
        CHECK(option_text(*options, OptionIndex(i)) == option_rows()[i].standard);
        CHECK(options->origins[i] == Origin::standard);
    }
}

TEST_CASE("the whole environment is returned unchanged", "[options]") {
    Environment environment{{"WEFT_ALGO", "ring=1"}, {"WEFT_TUNE_FILE", ""}};
    const std::vector<std::string> variables = whole_environment();
    for (const char* wanted : {"WEFT_ALGO=ring=1", "WEFT_TUNE_FILE="}) {
        INFO(wanted);
        CHECK(std::count(variables.begin(), variables.end(), wanted) == 1);
    }
    REQUIRE(clearenv() == 0);
    CHECK(whole_environment().empty());
    for (const std::string& variable : variables) {
        const size_t end = variable.find('=');
        setenv(variable.substr(0, end).c_str(), variable.c_str() + end + 1, 1);
    }
    CHECK(whole_environment() == variables);
}

TEST_CASE("a variable sets its option, and the origin says so", "[options]") {
    Environment environment{{"WEFT_TIMEOUT_MS", "0"}, {"WEFT_ALGO", "ring,^one_shot"}, {"WEFT_DIRECT", "0"}};
    Result<Options> options = read_options();
    REQUIRE(options);
    CHECK(options->timeout_ms == 0);
    CHECK(options->algo == "ring,^one_shot");
    CHECK(options->direct == 0);
    CHECK(options->origin(OptionIndex::timeout_ms) == Origin::environment);
    CHECK(options->origin(OptionIndex::algo) == Origin::environment);
    CHECK(options->origin(OptionIndex::warn_ms) == Origin::standard);
}

TEST_CASE("every row's variable is the name in capitals, and reaches its own field alone", "[options]") {
    for (size_t i = 0; i < option_rows().size(); ++i) {
        const OptionRow& row = option_rows()[i];
        INFO(row.variable);
        std::string value = std::string(row.type) == "text" ? "a text" : std::to_string(row.most);
        Environment environment{{row.variable, value}};
        Result<Options> options = read_options();
        REQUIRE(options);
        CHECK(options->warnings.empty());
        for (size_t k = 0; k < option_rows().size(); ++k) {
            CHECK(option_text(*options, OptionIndex(k)) == (k == i ? value : option_rows()[k].standard));
        }
    }
    CHECK(std::string(option_rows()[size_t(OptionIndex::init_timeout_ms)].variable) == "WEFT_INIT_TIMEOUT_MS");
}

TEST_CASE("an alias counts only where the option's own variable is unset", "[options]") {
    {
        Environment environment{{"NCCL_DEBUG", "INFO"}};
        Result<Options> options = read_options();
        REQUIRE(options);
        CHECK(options->debug == "INFO");
        CHECK(options->origin(OptionIndex::debug) == Origin::alias);
    }
    Environment environment{{"NCCL_DEBUG", "INFO"}, {"WEFT_DEBUG", "TRACE"}};
    Result<Options> options = read_options();
    REQUIRE(options);
    CHECK(options->debug == "TRACE");
    CHECK(options->origin(OptionIndex::debug) == Origin::environment);
}

TEST_CASE("every alias sets its option, is named by it, and is hidden by an empty variable of Weft's", "[options]") {
    // Aliases whose words are not any text, each with a word of NCCL's and Weft's word for it.
    const std::map<std::string, std::pair<std::string, std::string>> words{
        {"NCCL_SOCKET_FAMILY", {"AF_INET6", "AF_INET6"}},
        {"NCCL_P2P_DISABLE", {"1", "host"}},
        {"NCCL_IB_ADDR_FAMILY", {"AF_INET", "AF_INET"}},
        {"NCCL_NET_GDR_LEVEL", {"3", "PHB"}}};
    size_t aliases = 0;
    for (size_t i = 0; i < option_rows().size(); ++i)
        for (const char* alias : option_rows()[i].aliases) {
            INFO(alias);
            ++aliases;
            const OptionRow& row = option_rows()[i];
            const auto given = words.find(alias);
            const std::string value = given != words.end() ? given->second.first
                                      : std::string(row.type) == "text"
                                          ? "a text"
                                          : std::to_string(std::min<int64_t>(64, row.most));
            const std::string read = given != words.end() ? given->second.second : value;
            {
                Environment environment{{alias, value}};
                Result<Options> options = read_options();
                REQUIRE(options);
                CHECK(option_text(*options, OptionIndex(i)) == read);
                CHECK(options->origins[i] == Origin::alias);
                CHECK(std::string(options->variable(OptionIndex(i))) == alias);
            }
            Environment environment{{alias, value}, {row.variable, ""}};
            Result<Options> options = read_options();
            REQUIRE(options);
            CHECK(option_text(*options, OptionIndex(i)) == row.standard);
            CHECK(options->origins[i] == Origin::standard);
            CHECK(std::string(options->variable(OptionIndex(i))) == row.variable);
        }
    CHECK(aliases == 42);
}

TEST_CASE("a wrong value of an NCCL variable is a warning, and is ignored", "[options]") {
    Environment environment{{"NCCL_SOCKET_FAMILY", "AF_INET4"}, {"NCCL_GRAPH_FILE", "graph.xml"},
                            {"NCCL_P2P_DISABLE", "yes"},        {"NCCL_MAX_CTAS", "65"},
                            {"NCCL_COMM_ID", "10.0.0.1:4000"},  {"NCCL_BUFFSIZE", "abc"},
                            {"NCCL_ALGO", "nonsense"}};
    Result<Options> options = read_options();
    REQUIRE(options);
    CHECK(options->socket_family.empty());
    CHECK(options->origin(OptionIndex::socket_family) == Origin::standard);
    CHECK(options->gpu_path.empty());
    CHECK(options->gpu_blocks == 0);
    REQUIRE(options->warnings.size() == 5);
    CHECK(options->warnings[0].starts_with("NCCL_SOCKET_FAMILY is AF_INET4"));
    CHECK(options->warnings[1].starts_with("NCCL_MAX_CTAS is 65"));
    CHECK(options->warnings[2].starts_with("NCCL_P2P_DISABLE is yes; 0 or 1 is expected"));
    CHECK(options->warnings[3].starts_with("NCCL_GRAPH_FILE is set"));
    CHECK(options->warnings[4].starts_with("NCCL_COMM_ID is set"));
}

TEST_CASE("an NCCL variable that asks for NCCL's default leaves Weft's", "[options]") {
    Environment environment{{"NCCL_P2P_DISABLE", "0"}};
    Result<Options> options = read_options();
    REQUIRE(options);
    CHECK(options->gpu_path.empty());
    CHECK(options->warnings.empty());
}

TEST_CASE("an alias may ask for Weft's choice in its own words", "[options]") {
    Environment environment{{"NCCL_IB_GID_INDEX", "-1"}, {"UCX_IB_TRAFFIC_CLASS", "auto"}, {"UCX_IB_PKEY", "auto"}};
    Result<Options> options = read_options();
    REQUIRE(options);
    CHECK(options->ib_gid_index == -1);
    CHECK(options->ib_traffic_class == 0);
    CHECK(options->ib_pkey.empty());
    CHECK(options->warnings.empty());
}

TEST_CASE("an empty variable is as good as none", "[options]") {
    CHECK(objection("WEFT_TIMEOUT_MS", "") == "");
    Environment variables{{"WEFT_TIMEOUT_MS", ""}};
    CHECK(read_options()->timeout_ms == 600'000);
    CHECK(!environment("WEFT_TIMEOUT_MS"));
    CHECK(!environment("WEFT_NEVER_SET"));
}

TEST_CASE("a value that is no number is refused by name", "[options]") {
    for (const char* value : {"soon", "12x", "1.5", "0x10", " 7", "7 ", "--7", "+7", "1K"}) {
        INFO(value);
        CHECK(objection("WEFT_TIMEOUT_MS", value) ==
              "WEFT_TIMEOUT_MS: \"" + std::string(value) + "\" is not a whole number");
    }
    CHECK(objection("WEFT_TIMEOUT_MS", "9223372036854775808") ==
          "WEFT_TIMEOUT_MS: \"9223372036854775808\" is too large; the limit is 9223372036854775807");
}

TEST_CASE("a number out of range is refused with the range", "[options]") {
    CHECK(objection("WEFT_TIMEOUT_MS", "-1") == "WEFT_TIMEOUT_MS is -1; it must be at least 0");
    CHECK(objection("WEFT_DIRECT", "2") == "WEFT_DIRECT is 2; it must be from 0 to 1");
    // Beyond int, which must not wrap around into the range.
    CHECK(objection("WEFT_RANK", "4294967296") == "WEFT_RANK is 4294967296; it must be at most 2147483647");
    // "Not set" can be left out, but not written.
    CHECK(objection("WEFT_RANK", "-1") == "WEFT_RANK is -1; it must be at least 0");
}

TEST_CASE("sizes take binary units, other numbers do not", "[options]") {
    Environment environment{{"WEFT_TILE_BYTES", "64k"}};
    CHECK(read_options()->tile_bytes == 65536);
    CHECK(objection("WEFT_TILE_BYTES", "64KB") ==
          "WEFT_TILE_BYTES: \"64KB\" is not a whole number (K, M, G or T may follow it)");
}

TEST_CASE("all bad values are reported at once, and a good one beside them is not kept", "[options]") {
    Environment environment{{"WEFT_DIRECT", "yes"}, {"WEFT_WARN_MS", "-3"}, {"WEFT_CHANNELS", "2"}};
    Result<Options> options = read_options();
    REQUIRE(!options);
    CHECK_ERROR(options, "option.value");
    for (const char* part : {"WEFT_DIRECT", "WEFT_WARN_MS"})
        CHECK(options.status().sentence().find(part) != std::string::npos);
}

TEST_CASE("a misspelt name is a warning that offers the nearest", "[options]") {
    Environment environment(
        {{"WEFT_TIMOUT_MS", "5"}, {"WEFT_ALGOS", "ring"}, {"WEFT_COFFEE_MACHINE", "on"}, {"WEFTY", "1"}});
    Result<Options> options = read_options();
    REQUIRE(options);
    CHECK(options->timeout_ms == 600'000);
    std::vector<std::string> warnings = options->warnings;
    std::sort(warnings.begin(), warnings.end());
    REQUIRE(warnings.size() == 3);
    CHECK(warnings[0] == "WEFT_ALGOS is not an option; did you mean WEFT_ALGO?");
    CHECK(warnings[1] == "WEFT_COFFEE_MACHINE is not an option; `weft info` lists those that are");
    CHECK(warnings[2] == "WEFT_TIMOUT_MS is not an option; did you mean WEFT_TIMEOUT_MS?");
}

// Services of the names weft, weft-root and weft-rank, one of them with two named ports.
TEST_CASE("variables that Kubernetes makes for a service are no options", "[options]") {
    const std::vector<std::pair<const char*, const char*>> variables = {
        {"WEFT_SERVICE_HOST", "10.0.0.1"},
        {"WEFT_SERVICE_PORT", "80"},
        {"WEFT_PORT", "tcp://10.0.0.1:80"},
        {"WEFT_PORT_80_TCP", "tcp://10.0.0.1:80"},
        {"WEFT_PORT_80_TCP_PROTO", "tcp"},
        {"WEFT_PORT_80_TCP_PORT", "80"},
        {"WEFT_PORT_80_TCP_ADDR", "10.0.0.1"},
        {"WEFT_ROOT_SERVICE_HOST", "fd00::1"},
        {"WEFT_ROOT_SERVICE_PORT", "29500"},
        {"WEFT_ROOT_SERVICE_PORT_DATA_IN", "29500"},
        {"WEFT_ROOT_PORT", "udp://[fd00::1]:29500"},
        {"WEFT_ROOT_PORT_29500_UDP", "udp://[fd00::1]:29500"},
        {"WEFT_ROOT_PORT_29500_UDP_ADDR", "fd00::1"},
        {"WEFT_RANK_PORT", "sctp://10.0.0.2:1"},
        {"WEFT_RANK_PORT_1_SCTP_PORT", "1"},
    };
    std::map<std::string, std::string> all;
    for (const auto& [name, value] : variables) {
        CHECK(is_service_variable(name, value));
        all[name] = value;
    }
    for (const auto& [name, value] : std::vector<std::pair<const char*, const char*>>{
             {"WEFT_ROOT_PORT", "29500"},
             {"WEFT_ROOT_PORT", "http://10.0.0.1:80"},
             {"WEFT_ROOT_HOST", "tcp://10.0.0.1:80"},
             {"WEFT_PORT_RANGE", "40000-40010"},
             {"WEFT_PORT_TCP", "tcp://10.0.0.1:80"},
             {"WEFT_80_TCP", "tcp://10.0.0.1:80"},
             {"WEFT_PORT_80_TCP", "80"},
             {"WEFT_SERVICES_HOST", "10.0.0.1"},
         })
        CHECK_FALSE(is_service_variable(name, value));
    Environment environment(all);
    const Result<Options> options = read_options();
    REQUIRE(options);
    CHECK(options->root_port == 0);
    CHECK(options->origin(OptionIndex::root_port) == Origin::standard);
    CHECK(options->warnings.empty());
    CHECK(service_variables().size() == variables.size());
}

TEST_CASE("whole numbers are read to their limits", "[options]") {
    CHECK(*parse_integer("-9223372036854775808") == INT64_MIN);
    CHECK(*parse_integer("9223372036854775807") == INT64_MAX);
    CHECK(*parse_integer("3T", true) == int64_t(3) << 40);
    CHECK(*parse_integer("-2M", true) == -(int64_t(2) << 20));
    CHECK(*parse_integer("8388607T", true) == int64_t(8388607) << 40);
    CHECK(!parse_integer("8388608T", true));
    CHECK(!parse_integer("", true));
    CHECK(!parse_integer("K", true));
    CHECK(!parse_integer("-", false));
    CHECK(!parse_integer(std::string("8\0", 2), true));
}
