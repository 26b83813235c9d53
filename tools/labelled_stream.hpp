// labelled_stream.hpp: merges many ranks' output into one stream, line by line, each line with its rank as label.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::tools {

// Reads the pipes of the ranks and writes to `target`, which stays blocking because other processes share it.
// It writes only as many bytes as poll permits.
// If no process reads the target any more, or its disk is full, the pipes are closed and the ranks get SIGPIPE.
// Thread-bound to the launcher's only thread.
class LabelledStream {
  public:
    static Result<LabelledStream> make(int target);

    // Takes the reading end of the rank's pipe.
    Status add(int rank, Fd pipe);
    // Adds a line of the launcher behind the ranks' output so far.
    void say(const std::string& line) { queue_ += line + "\n"; }

    // For poll: readable() for POLLIN while there is room; target() for POLLOUT while has_queued().
    int readable() const { return epoll_.number(); }
    int target() const { return target_; }
    bool has_room() const { return queue_.size() - written_ < queue_limit_bytes; }
    bool has_queued() const { return written_ < queue_.size(); }
    // errno of the failed write; 0: none. EPIPE: no process reads the target any more.
    int error() const { return error_; }
    // Reads available output without blocking.
    void read_some();
    void write_some();
    // Reads the rest of the pipes, ends unfinished lines and writes everything, blocking if necessary.
    void finish();

  private:
    static constexpr size_t queue_limit_bytes = 1 << 20;  // a slow reader slows the ranks, as with a plain pipe
    static constexpr size_t line_limit_bytes = 1 << 20;   // a longer line is broken, so that memory stays bounded
    struct Source {
        int rank;
        Fd pipe;
        std::string line;  // the unfinished last line
    };

    LabelledStream(int target, Fd epoll) : target_(target), epoll_(std::move(epoll)) {}
    bool read_from(Source& source);
    void end_line(Source& source);
    void close_pipe(Source& source);
    void write_up_to(size_t limit_bytes);

    int target_;
    Fd epoll_;
    std::vector<std::unique_ptr<Source>> sources_;
    std::string queue_;
    size_t written_ = 0;  // bytes of queue_ that are written
    int error_ = 0;
};

}  // namespace weft::internal::tools
