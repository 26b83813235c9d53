// perftest.hpp: programs of perftest, whose figures stand beside Weft's.
#pragma once
#include <string>
#include <vector>

namespace weft::internal::tools {

struct Perftest {
    const char* program;  // ib_send_lat
    int bytes, times;
    int column;  // of the figure in the program's last line, from 0
};
inline constexpr Perftest send_latency{"ib_send_lat", 8, 500, 4};           // typical microseconds
inline constexpr Perftest write_bandwidth{"ib_write_bw", 1 << 20, 100, 3};  // average MiB/s

// The end of the path that Weft has chosen: "mlx5_0:1 GID 3 10.0.0.1".
struct RdmaEnd {
    std::string device;
    int port = 1, gid_index = 0;
};
// Of rank `rank`, from its log at INFO. An empty device: there is no such line.
RdmaEnd rdma_end_of(const std::string& log);

bool is_installed(const char* program);
// `host`: of the server; empty: this process is the server.
std::vector<std::string> perftest_words(const Perftest& test, const RdmaEnd& end, int socket_port,
                                        const std::string& host);
// The figure in the program's output; 0: there is none.
double perftest_figure(const Perftest& test, const std::string& output);

}  // namespace weft::internal::tools
