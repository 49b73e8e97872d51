#include "ledger.h"

#include <limits>
#include <stdexcept>

namespace unstarve {
namespace {

constexpr std::size_t kMostFields = 32;

// Whether the value fits; `out` is moved behind it.
template <typename Field>
bool put(std::int64_t value, char *&out) {
    for (std::size_t byte = 0; byte < sizeof(Field); ++byte) {
        *out++ = static_cast<char>(static_cast<std::uint64_t>(value) >> (8 * byte));
    }
    using Limits = std::numeric_limits<Field>;
    const bool low = Limits::is_signed ? value < std::int64_t{Limits::min()} : value < 0;
    const bool high = sizeof(Field) < sizeof value && value > static_cast<std::int64_t>(Limits::max());
    return !low && !high;
}

}  // namespace

void Ledger::append(int kind, const char *row, std::size_t size) {
    const std::lock_guard locked(mutex_);
    rows_[kind].append(row, size);
}

std::vector<std::pair<int, std::string>> Ledger::take() {
    std::vector<std::pair<int, std::string>> taken;
    const std::lock_guard locked(mutex_);
    for (auto &[kind, rows] : rows_) {
        if (!rows.empty()) {
            taken.emplace_back(kind, rows);
            rows.clear();  // its memory is kept for the next ones
        }
    }
    return taken;
}

Layout::Layout(int kind, const std::string &letters) : kind_(kind), letters_(letters) {
    if (letters.size() > kMostFields || letters.find_first_not_of("HIiqQ") != std::string::npos) {
        throw std::invalid_argument("a row cannot be laid out as " + letters);
    }
}

bool Layout::append(const std::int64_t *values, Ledger &ledger) const {
    char row[kMostFields * sizeof *values];
    char *end = row;
    bool fits = true;
    for (const char letter : letters_) {
        const std::int64_t value = *values++;
        switch (letter) {
            case 'H': fits &= put<std::uint16_t>(value, end); break;
            case 'I': fits &= put<std::uint32_t>(value, end); break;
            case 'i': fits &= put<std::int32_t>(value, end); break;
            case 'q': fits &= put<std::int64_t>(value, end); break;
            default: fits &= put<std::uint64_t>(value, end); break;
        }
    }
    if (fits) {
        ledger.append(kind_, row, static_cast<std::size_t>(end - row));
    }
    return fits;
}

}  // namespace unstarve
