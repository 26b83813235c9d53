// file_test.cpp: what is read as a whole file, and what is refused.
#include "src/base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "tests/catch.hpp"
#include "tests/folder.hpp"

namespace weft::internal::test {

TEST_CASE("a pipe that nobody writes is refused at once, and read where that is asked for", "[file]") {
    const Folder folder;
    const std::string pipe = folder.path / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const auto refused = read_file(pipe, 100);
    REQUIRE(!refused);
    CHECK(refused.status().code() == weftInvalidUsage);
    CHECK(refused.status().sentence() == pipe + " is a pipe, for whose end nobody may wait here: name a file");
    std::thread writer([&] {
        const int fd = open(pipe.c_str(), O_WRONLY);
        CHECK(write(fd, "text", 4) == 4);
        close(fd);
    });
    const auto read = read_file(pipe, 100, Pipes::read);
    writer.join();
    REQUIRE(read);
    CHECK(*read == "text");
}

TEST_CASE("what never ends, is a folder or is not there is told by name", "[file]") {
    CHECK(read_file("/dev/zero", 1 << 20).status().sentence() == "/dev/zero is larger than 1 MiB");
    CHECK(read_file("/dev/null", 100)->empty());
    CHECK(read_file("/", 100).status().sentence().rfind("/ could not be read: ", 0) == 0);
    CHECK(read_file("/nowhere/at/all", 100).status().code() == weftSystemError);
}

}  // namespace weft::internal::test
