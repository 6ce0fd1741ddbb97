from tests.support.memory import disk_path as tmp_path

__all__ = ["tmp_path"]
