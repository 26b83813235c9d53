// labelled_stream.hpp: many ranks' output on one stream, line by line, each line with its rank before it.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/base/fd.hpp"
#include "src/base/result.hpp"

namespace weft::internal::tools {

// Reads the pipes of the ranks and writes to `target`, which is never made non-blocking, for others share it: it is
// written only as far as poll says it takes. When no process reads the target any more, or it is full, the
// pipes are closed, and the ranks get SIGPIPE. Thread-bound to the launcher's only thread.
class LabelledStream {
  public:
    static Result<LabelledStream> make(int target);

    // Takes the reading end of the rank's pipe.
    Status add(int rank, Fd pipe);
    // A line of the launcher itself, after what the ranks have written until now.
    void say(const std::string& line) { queue_ += line + "\n"; }

    // What to poll for: readable(), while there is room, for POLLIN; target(), while has_queued(), for POLLOUT.
    int readable() const { return epoll_.number(); }
    int target() const { return target_; }
    bool has_room() const { return queue_.size() - written_ < queue_limit_bytes; }
    bool has_queued() const { return written_ < queue_.size(); }
    // errno of what could not be written; 0: none. EPIPE: nobody reads any more.
    int error() const { return error_; }
    // Moves what is there without blocking.
    void read_some();
    void write_some();
    // Reads what is still in the pipes, ends unfinished lines, writes everything, blocking if need be.
    void finish();

  private:
    static constexpr size_t queue_limit_bytes = 1 << 20;  // a slow reader slows the ranks, as a plain pipe would
    static constexpr size_t line_limit_bytes = 1 << 20;   // a line longer than this is broken, or memory is the limit
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
    size_t written_ = 0;  // bytes of queue_ that are out
    int error_ = 0;
};

}  // namespace weft::internal::tools
