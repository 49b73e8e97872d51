#include "jpeg_scans.h"

#include <algorithm>
#include <cstring>

namespace unstarve {
namespace {

// A pass over so many pixels takes about a second where next to nothing is coded of them. Even the largest image
// that is decoded may have 24 scans.
constexpr std::uint64_t max_scanned_pixels = std::uint64_t{1} << 32;
constexpr std::uint64_t max_scans = 500;

// Markers without a length behind them, and bytes of coded data that only look like one.
bool stands_alone(unsigned code) { return code <= 0x01 || (code >= 0xD0 && code <= 0xD8) || code == 0xFF; }

bool begins_frame(unsigned code) {
    return code >= 0xC0 && code <= 0xCF && code != 0xC4 && code != 0xC8 && code != 0xCC;
}

}  // namespace

std::size_t count_jpeg_scans(const std::uint8_t *data, std::size_t size) {
    const std::uint8_t *const end = data + size;
    std::size_t scans = 0;
    unsigned components = 0;
    bool progressive = false;
    for (const std::uint8_t *at = data; at < end;) {
        const auto left = static_cast<std::size_t>(end - at);
        at = static_cast<const std::uint8_t *>(std::memchr(at, 0xFF, left));
        if (at == nullptr || end - at < 10 || at[1] == 0xD9) {
            break;
        }
        const unsigned code = at[1];
        if (stands_alone(code)) {
            at += code == 0xFF ? 1 : 2;
            continue;
        }
        if (begins_frame(code)) {
            components = at[9];
            progressive = (code & 3) == 2;
        } else if (code == 0xDA) {
            ++scans;
            if (!progressive && at[4] == components) {
                return 1;
            }
        }
        const auto length = static_cast<std::size_t>(at[2] << 8 | at[3]);
        at += std::min(2 + std::max<std::size_t>(length, 2), static_cast<std::size_t>(end - at));
    }
    return scans;
}

std::uint64_t max_jpeg_scans(std::uint64_t pixels) {
    return std::min(max_scans, max_scanned_pixels / std::max<std::uint64_t>(pixels, 1));
}

}  // namespace unstarve
