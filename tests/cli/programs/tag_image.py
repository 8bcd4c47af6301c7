"""An image by tag: tomorrow's Pod may run other code than today's."""

from common import claim, job

claim("ReadWriteMany")
job(image="registry.example.com/ml/train:v3")
