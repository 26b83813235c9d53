#include "tools/perftest.hpp"

#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "src/base/environment.hpp"

namespace weft::internal::tools {

// "rank 0 links mlx5_0:1 GID 3 10.0.0.1 ... to ..."
RdmaEnd rdma_end_of(const std::string& log) {
    RdmaEnd end;
    const size_t found = log.find(" links ");
    if (found == std::string::npos) return end;
    std::istringstream words(log.substr(found + 7, log.find(" to ", found) - found - 7));
    for (std::string word; words >> word;) {
        const size_t colon = word.rfind(':');
        if (end.device.empty() && colon != std::string::npos && colon > 0 && word.find('.') == std::string::npos) {
            end.device = word.substr(0, colon);
            end.port = std::atoi(word.c_str() + colon + 1);
        }
        if (word == "GID") words >> end.gid_index;
    }
    return end;
}

bool is_installed(const char* program) {
    std::istringstream folders(environment("PATH").value_or(""));
    for (std::string folder; std::getline(folders, folder, ':');)
        if (access((folder + "/" + program).c_str(), X_OK) == 0) return true;
    return false;
}

std::vector<std::string> perftest_words(const Perftest& test, const RdmaEnd& end, int socket_port,
                                        const std::string& host) {
    std::vector<std::string> words{test.program, "-F",
                                   "-d",         end.device,
                                   "-i",         std::to_string(end.port),
                                   "-x",         std::to_string(end.gid_index),
                                   "-s",         std::to_string(test.bytes),
                                   "-n",         std::to_string(test.times),
                                   "-p",         std::to_string(socket_port)};
    if (!host.empty()) words.push_back(host);
    return words;
}

double perftest_figure(const Perftest& test, const std::string& output) {
    std::istringstream lines(output);
    double figure = 0;
    for (std::string line; std::getline(lines, line);) {
        std::istringstream numbers(line);
        double number = 0;
        for (int column = 0; numbers >> number; ++column) {
            if (column == 0 && number != test.bytes) break;
            if (column == test.column) figure = number;
        }
    }
    return figure;
}

}  // namespace weft::internal::tools
